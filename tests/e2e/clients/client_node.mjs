// @kubernetes/client-node: run a Job to its end, watched; patch it; read its log; delete it. Prints what it saw.
import * as k8s from '@kubernetes/client-node';

const namespace = 'default';
const name = 'javascript';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const batch = config.makeApiClient(k8s.BatchV1Api);
const core = config.makeApiClient(k8s.CoreV1Api);

const container = { name: 'main', image: 'busybox', command: ['sh', '-c', 'echo hello'] };
const body = { metadata: { name }, spec: { template: { spec: { restartPolicy: 'Never', containers: [container] } } } };
const made = await batch.createNamespacedJob({ namespace, body });

async function watched(resourceVersion, ends) {
  const types = new Set();
  const query = { fieldSelector: `metadata.name=${name}`, resourceVersion };
  await new Promise((resolve, reject) => {
    let controller;
    new k8s.Watch(config)
      .watch(
        `/apis/batch/v1/namespaces/${namespace}/jobs`,
        query,
        (type, object) => {
          types.add(type);
          if (ends(type, object)) {
            resolve();
            controller?.abort();
          }
        },
        (error) => (error ? reject(error) : resolve()),
      )
      .then((given) => (controller = given));
  });
  return [...types];
}

const types = await watched(made.metadata.resourceVersion, (_, job) =>
  (job.status?.conditions ?? []).some((each) => each.type === 'Complete' && each.status === 'True'),
);
const { items } = await core.listNamespacedPod({ namespace, labelSelector: `job-name=${name}` });
const patch = [{ op: 'add', path: '/metadata/labels/patched', value: 'yes' }];
const patched = await batch.patchNamespacedJob({ namespace, name, body: patch });
const listed = await batch.listJobForAllNamespaces({ labelSelector: 'patched=yes' });
const log = await core.readNamespacedPodLog({ namespace, name: items[0].metadata.name });
let twice = '';
try {
  await batch.createNamespacedJob({ namespace, body });
} catch (error) {
  twice = JSON.parse(error.body).reason;
}
const deleted = await batch.deleteNamespacedJob({ namespace, name, propagationPolicy: 'Foreground' });
await watched(patched.metadata.resourceVersion, (type) => type === 'DELETED');
const left = await batch.listNamespacedJob({ namespace, fieldSelector: `metadata.name=${name}` });
console.log(
  JSON.stringify({
    succeeded: left.items.length === 0 && items[0].status.phase === 'Succeeded',
    changes: types.join() === 'MODIFIED',
    patched: patched.metadata.labels.patched,
    listed: listed.items.map((each) => each.metadata.name).join() === name,
    log,
    twice,
    deleted: deleted !== undefined,
  }),
);
process.exit(0);
