/** The tries of a request at engines and nodes, for the record of a failed or retried request. */

export interface RequestTry {
  /** Name of the engine, or of the node of a network. */
  readonly engine: string;
  /** The engine's name of the model, or the network of a node. */
  readonly target: string;
  readonly startedMs: number;
  readonly tookMs: number;
  /** HTTP status of the engine; `undefined` without a response. */
  readonly status?: number | undefined;
  /** Class of the failure, such as `timeout`; `ok` for a success after failed tries. */
  readonly result: string;
  /** Message of Farebox about the failure; it can contain addresses. */
  readonly detail: string;
  /** The error message of the engine, unchanged. */
  readonly words: string;
}

/** Receives failed tries, and the success that follows them. */
export interface TryLog {
  addTry(tried: RequestTry): void;
}
