// To be built.
export function CronJobsPage() {
  return <h1>CronJobs</h1>;
}
