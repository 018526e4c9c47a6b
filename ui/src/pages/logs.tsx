// To be built.
export function LogsPage({ namespace, kind, name }: { namespace: string; kind: "job" | "pod"; name: string }) {
  return (
    <h1>
      {kind} {namespace}/{name}
    </h1>
  );
}
