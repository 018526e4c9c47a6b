// The form for those who have no token yet, and how to get one.
import { useSignal } from "@preact/signals";
import { Icon } from "../components/icon";
import { Problem } from "../components/parts";
import { signIn, signOut } from "../session";

export function SignInPage({ problem }: { problem: string }) {
  const said = useSignal(problem);
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const value = String(new FormData(event.currentTarget as HTMLFormElement).get("token")).trim();
    const answer = await fetch("/version", { headers: { Authorization: `Bearer ${value}` } }).catch(() => null);
    if (answer?.ok) signIn(value);
    else {
      signOut();
      said.value = answer ? "The server does not accept this token." : "The server does not answer. Try again.";
    }
  };
  return (
    <main class="signin">
      <form onSubmit={(event) => void submit(event)}>
        <p class="brand">
          <Icon name="brand" /> Jobplane
        </p>
        <h1>Sign in</h1>
        <Problem>{said.value}</Problem>
        <label>
          Token
          <input name="token" type="password" autocomplete="off" required autofocus />
        </label>
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="muted">
          On the machine that runs Jobplane, <code>jobplane page</code> prints a link that signs you in. A token for a person is made by{" "}
          <code>jobplane token --user NAME</code>.
        </p>
      </form>
    </main>
  );
}
