/**
 * What a route declares: its path, who may call it, what body it reads, and its handler. The stages
 * in `server.ts` do the rest in one order for all.
 */
import type { RouteDescription } from './describe.ts';
import type { RequestContext } from './request-context.ts';

/**
 * Who may call: anybody; any API key; an API key or a wallet; an ADMIN key; an ADMIN key or a
 * wallet; a wallet only.
 */
export type RouteAuth = 'public' | 'key' | 'key-or-wallet' | 'admin' | 'admin-or-wallet' | 'wallet';

/** What it is worth asking from a caller before the handler runs. */
export interface RouteBody {
  /** Content types that are read, by their start; another one is a 415. */
  readonly types: readonly string[];
  readonly limitBytes: number;
}

export interface Route {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE' | 'PUT';
  /** Below the base path, with `:name` for parameters: `/chat/completions`. */
  readonly path: string;
  /** The path stands at the origin, not below the base path. */
  readonly root?: boolean;
  /**
   * For operators' tools and readers (`/readyz`, `/docs`): answered while the server drains, without
   * guard or caller, and logged at `debug`.
   */
  readonly operational?: true;
  readonly auth: RouteAuth;
  /** What it offers, in a few words: payment requirements and the x402 manifest say so. */
  readonly about?: string;
  /** Missing for a route that reads no body. */
  readonly body?: RouteBody;
  /** The kind of work that the route sells; such a route is refused at start without a price. */
  readonly sells?: string;
  /** The handler reads `Idempotency-Key` itself; otherwise the stage does for all that sells. */
  readonly ownIdempotency?: boolean;
  /** What the route says of itself; a route without it fails the test of the document. */
  readonly describe?: RouteDescription;
  handle(context: RequestContext): Promise<void>;
}

/** decisions.md 11: JSON bodies of up to 35 MB, files of up to 25 MB. */
export const JSON_BODY: RouteBody = { types: ['application/json'], limitBytes: 35 * 1024 * 1024 };
/** Bodies of management routes. */
export const SMALL_JSON_BODY: RouteBody = { types: ['application/json'], limitBytes: 256 * 1024 };

/** A route that only answers: no body, no price. */
export function get(
  path: string,
  auth: RouteAuth,
  describe: RouteDescription,
  handle: Route['handle'],
): Route {
  return { method: 'GET', path, auth, describe, handle };
}
