// Icons as lines of the text's colour; decoration only, so hidden from screen readers.
const PATHS = {
  brand: "M5 4h5v16H5zM14 4h5v6h-5zM14 14h5v6h-5z",
  cluster: "M4 13h4v7H4zM10 4h4v16h-4zM16 9h4v11h-4z",
  jobs: "M4 6h16M4 12h16M4 18h10",
  cronjobs: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 7v5l3 3",
  pods: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM12 12l8-4.5M12 12v9M12 12L4 7.5",
  nodes: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  queues: "M4 7h10M4 12h16M4 17h6",
  events: "M3 12h4l3-7 4 14 3-7h4",
  views: "M6 4h12v16l-6-4-6 4z",
  history: "M4 12a8 8 0 1 0 3-6.2M4 4v4h4M12 8v4l3 2",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1 1M18 18l1 1M19 5l-1 1M6 18l-1 1",
  moon: "M20 14a8 8 0 1 1-9-10 7 7 0 0 0 9 10z",
  half: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  out: "M14 4h5v16h-5M3 12h11M10 8l4 4-4 4",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M16 16l4 4",
  close: "M6 6l12 12M18 6L6 18",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
