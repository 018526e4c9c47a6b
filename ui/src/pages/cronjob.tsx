// To be built.
export function CronJobPage({ namespace, name }: { namespace: string; name: string }) {
  return (
    <h1>
      {namespace}/{name}
    </h1>
  );
}
