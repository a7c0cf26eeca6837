/** The declarations of features (routes, jobs, end) and of routes (path, caller, body, handler). */
import type { RouteDescription } from './describe.ts';
import type { RequestContext, RouteName } from './request-context.ts';

/** The callers that a route accepts. `operator`: an ADMIN key of the operator's account. */
export type RouteAuth =
  | 'public'
  | 'key'
  | 'key-or-wallet'
  | 'optional-key-or-wallet'
  | 'admin'
  | 'admin-or-wallet'
  | 'wallet'
  | 'operator';

export interface RouteBody {
  /** Beginnings of the accepted content types; others get 415. */
  readonly types: readonly string[];
  /** Default: the settings `jsonLimitBytes`, and for a form `fileLimitBytes`. */
  readonly limitBytes?: number;
  /** Lower limit for an unknown caller. */
  readonly strangerLimitBytes?: number;
  /** The handler reads the body while it arrives, and checks its size and coding. */
  readonly isStreamed?: true;
}

export interface Route extends RouteName {
  /** The path is not below the base path. */
  readonly root?: boolean;
  readonly auth: RouteAuth;
  /** A short name for payment requirements and the x402 manifest. */
  readonly about?: string;
  /** `undefined` for a route without a body. */
  readonly body?: RouteBody;
  /** The kind of work that the route sells; without a price the server does not start. */
  readonly sells?: string;
  /** The handler reads `Idempotency-Key`, instead of the stage. */
  readonly ownIdempotency?: boolean;
  /** Sells nothing, but stores its response under an `Idempotency-Key`. */
  readonly keepsResponse?: boolean;
  /** For the OpenAPI document, whose test requires it. */
  readonly describe?: RouteDescription;
  handle(context: RequestContext): void | Promise<void>;
}

export const JSON_TYPE = 'application/json; charset=utf-8';

/** Up to `http.jsonLimitBytes`. */
export const JSON_BODY: RouteBody = { types: ['application/json'] };
/** A form with a file of up to `http.fileLimitBytes`. */
export const FORM_BODY: RouteBody = { types: ['multipart/form-data'] };
/** The same, read by the handler with `streamFile`. */
export const STREAMED_FORM_BODY: RouteBody = { types: FORM_BODY.types, isStreamed: true };
/** For management routes. */
export const SMALL_JSON_BODY: RouteBody = { types: ['application/json'], limitBytes: 256 * 1024 };

export interface Feature {
  readonly routes: readonly Route[];
  /** Called once the server listens. */
  readonly start?: () => void;
  /** Runs once a minute in every process; a failure is logged. */
  readonly perProcessJob?: () => Promise<unknown>;
  /** Runs once a minute in one of the processes that share the database. */
  readonly leaderJob?: () => Promise<unknown>;
  /** Called after the last response was sent and before the database closes. */
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

export function patch(...route: Parameters<typeof get>): Route {
  return { ...post(...route), method: 'PATCH' };
}

/** A management route that deletes: no body, no price. */
export function remove(...route: Parameters<typeof get>): Route {
  return { ...get(...route), method: 'DELETE' };
}
