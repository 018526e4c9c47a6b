// To be built.
export function PodPage({ namespace, name }: { namespace: string; name: string }) {
  return (
    <h1>
      {namespace}/{name}
    </h1>
  );
}
