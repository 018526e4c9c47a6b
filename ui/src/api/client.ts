// Requests to the Kubernetes API of the server that this page came from, with the viewer's token.
import { signOut, token } from "../session";

/** An answer that is no success: Kubernetes' Status, in words for people. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

export interface RequestOptions {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  body?: unknown;
  contentType?: string;
  accept?: string;
  signal?: AbortSignal;
}

/** Send a request; a refusal becomes an ApiError. A 401 signs out: the token has ended. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers = new Headers({ Accept: options.accept ?? "application/json" });
  if (token.value) headers.set("Authorization", `Bearer ${token.value}`);
  const init: RequestInit = { method: options.method ?? "GET", headers };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    headers.set("Content-Type", options.contentType ?? "application/json");
    init.body = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
  }
  const answer = await fetch(path, init);
  if (answer.ok) return answer;
  if (answer.status === 401) signOut();
  throw await refusal(answer);
}

/** Send a request and read the JSON of its answer. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<T> {
  return (await (await send(path, options)).json()) as T;
}

async function refusal(answer: Response): Promise<ApiError> {
  const text = await answer.text();
  try {
    const status = JSON.parse(text) as { reason?: string; message?: string };
    return new ApiError(answer.status, status.reason ?? "", status.message ?? text);
  } catch {
    return new ApiError(answer.status, "", text || `HTTP ${answer.status}`);
  }
}
