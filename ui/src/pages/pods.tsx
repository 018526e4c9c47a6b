// To be built.
export function PodsPage() {
  return <h1>Pods</h1>;
}
