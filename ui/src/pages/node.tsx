// To be built.
export function NodePage({ name }: { name: string }) {
  return <h1>{name}</h1>;
}
