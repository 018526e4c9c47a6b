// To be built.
export function JobPage({ namespace, name }: { namespace: string; name: string }) {
  return (
    <h1>
      {namespace}/{name}
    </h1>
  );
}
