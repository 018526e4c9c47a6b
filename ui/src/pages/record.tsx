// To be built.
export function RecordPage({ namespace, uid }: { namespace: string; uid: string }) {
  return (
    <h1>
      {namespace}/{uid}
    </h1>
  );
}
