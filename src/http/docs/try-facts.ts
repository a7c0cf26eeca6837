/**
 * What the page has to know of a route to call it from the browser. Written into the page as JSON
 * beside each route; read by its script.
 */

export interface TryFacts {
  readonly method: string;
  /** From the root of the server, with `{name}` for parameters. */
  readonly path: string;
  /** `wallet`: a signature that only a wallet makes. */
  readonly credential: 'none' | 'key' | 'admin' | 'wallet';
  /** A request that succeeds costs money. */
  readonly isPaid: boolean;
  /** What it removes or takes is not brought back by calling another route. */
  readonly isDestructive: boolean;
  readonly parameters: readonly TryParameter[];
  readonly bodies: readonly TryBody[];
}

export interface TryParameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required: boolean;
  readonly example?: string;
  /** All that it can be, where that is a short list. */
  readonly values?: readonly string[];
}

export interface TryBody {
  readonly type: string;
  /** As it is sent; JSON alone has one. */
  readonly text?: string;
  /** Of a form. */
  readonly fields?: readonly TryField[];
}

export interface TryField {
  readonly name: string;
  readonly required: boolean;
  readonly isFile: boolean;
  readonly value?: string;
  readonly values?: readonly string[];
}
