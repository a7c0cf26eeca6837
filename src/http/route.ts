/**
 * What a feature declares: routes, jobs, end. What a route declares: path, caller, body, handler.
 */
import type { RouteDescription } from './describe.ts';
import type { RequestContext, RouteName } from './request-context.ts';

/** Who may call. An `operator` is an ADMIN key of the operator's own account. */
export type RouteAuth =
  | 'public'
  | 'key'
  | 'key-or-wallet'
  | 'optional-key-or-wallet'
  | 'admin'
  | 'admin-or-wallet'
  | 'wallet'
  | 'operator';

/** What it is worth asking from a caller before the handler runs. */
export interface RouteBody {
  /** Content types that are read, by their start; another one is a 415. */
  readonly types: readonly string[];
  /** Default: what the settings allow a JSON body, and the file of a form. */
  readonly limitBytes?: number;
  /** Of a body whose sender is not known, where it is less. */
  readonly strangerLimitBytes?: number;
  /** The handler reads it from the request as it comes, and sees to its size and its coding. */
  readonly isStreamed?: true;
}

export interface Route extends RouteName {
  /** The path stands at the origin, not below the base path. */
  readonly root?: boolean;
  readonly auth: RouteAuth;
  /** What it offers, in a few words: payment requirements and the x402 manifest say so. */
  readonly about?: string;
  /** Missing for a route that reads no body. */
  readonly body?: RouteBody;
  /** The kind of work that the route sells; such a route is refused at start without a price. */
  readonly sells?: string;
  /** The handler reads `Idempotency-Key` itself; otherwise the stage does for all that sells. */
  readonly ownIdempotency?: boolean;
  /** Sells nothing, and keeps its answer under an `Idempotency-Key` in its own transaction. */
  readonly keepsResponse?: boolean;
  /** What the route says of itself; a route without it fails the test of the document. */
  readonly describe?: RouteDescription;
  handle(context: RequestContext): void | Promise<void>;
}

/** Of every answer that is JSON. */
export const JSON_TYPE = 'application/json; charset=utf-8';

/** As large as `http.jsonLimitBytes` allows. */
export const JSON_BODY: RouteBody = { types: ['application/json'] };
/** A form with a file, as large as `http.fileLimitBytes` allows. */
export const FORM_BODY: RouteBody = { types: ['multipart/form-data'] };
/** The same, read by the handler as it comes: `multipart.ts`, `streamFile`. */
export const STREAMED_FORM_BODY: RouteBody = { types: FORM_BODY.types, isStreamed: true };
/** Bodies of management routes. */
export const SMALL_JSON_BODY: RouteBody = { types: ['application/json'], limitBytes: 256 * 1024 };

/** A feature as the server sees it. */
export interface Feature {
  readonly routes: readonly Route[];
  /** Called once the server listens. */
  readonly start?: () => void;
  /** Once a minute in every process; a failure is logged and tried again. */
  readonly perProcessJob?: () => Promise<unknown>;
  /** Work on the database: once a minute in one of all processes that share it. */
  readonly leaderJob?: () => Promise<unknown>;
  /** Called after the last answer has left and before the database closes. */
  readonly close?: () => Promise<void>;
}

/** A route that reads: no body, no price. */
export function get(
  path: string,
  auth: RouteAuth,
  describe: RouteDescription,
  handle: Route['handle'],
): Route {
  return { method: 'GET', path, auth, describe, handle };
}

/** A management route that writes: a small JSON body, no price. */
export function post(...route: Parameters<typeof get>): Route {
  return { ...get(...route), method: 'POST', body: SMALL_JSON_BODY };
}

/** As `post`, for a change. */
export function patch(...route: Parameters<typeof get>): Route {
  return { ...post(...route), method: 'PATCH' };
}

/** A management route that deletes: no body, no price. */
export function remove(...route: Parameters<typeof get>): Route {
  return { ...get(...route), method: 'DELETE' };
}
