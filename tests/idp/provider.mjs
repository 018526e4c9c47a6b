// An identity provider for tests: oidc-provider, which is certified, over TLS, with users who sign in without a form.
// A test starts it with its configuration as JSON in the first argument; it prints a line when it listens.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import Provider from 'oidc-provider';

const { issuer, port, cert, key, jwks, algorithm, clients, users, seconds } = JSON.parse(process.argv[2]);
const accounts = new Map(Object.entries(users));

const provider = new Provider(issuer, {
  jwks,
  clients: clients.map((client_id) => ({
    client_id,
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
    redirect_uris: ['http://127.0.0.1/callback'],
    id_token_signed_response_alg: algorithm,
  })),
  claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
  scopes: ['openid', 'offline_access', 'email', 'groups'],
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...accounts.get(id) }) }),
  issueRefreshToken: async () => true,
  rotateRefreshToken: true,
  pkce: { required: () => true },
  cookies: { keys: ['of the tests'] },
  ttl: { IdToken: seconds, AccessToken: 3600, RefreshToken: 86400, Session: 3600, Grant: 86400, Interaction: 3600, DeviceCode: 600 },
  enabledJWA: { idTokenSigningAlgValues: ['RS256', 'ES256', 'PS256'] },
  features: { devInteractions: { enabled: false }, deviceFlow: { enabled: true, userCodeConfirmSource: confirm } },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
});

async function confirm(ctx, form) {
  ctx.body = `<html>${form}</html>`;
}

// Whoever opens this page is signed in as the first user, or the one of the request's login_hint, and consents.
async function interact(req, res) {
  const { prompt, params, session } = await provider.interactionDetails(req, res);
  if (prompt.name === 'login') {
    const accountId = params.login_hint ?? accounts.keys().next().value;
    return provider.interactionFinished(req, res, { login: { accountId } }, { mergeWithLastSubmission: false });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? 'openid');
  return provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

const answer = provider.callback();
createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (req, res) => {
  const handling = req.url.startsWith('/interaction/') ? interact(req, res) : answer(req, res);
  Promise.resolve(handling).catch((error) => res.writeHead(500).end(String(error)));
}).listen(port, '127.0.0.1', () => console.log('listening'));
process.stdin.on('end', () => process.exit(0)).resume(); // ends with whoever has started it
