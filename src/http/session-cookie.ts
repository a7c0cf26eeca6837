/**
 * The cookie of a console session, and the checks of requests with it: they come from a page of
 * this origin, and a write has the token that only such a page can read.
 */
import { timingSafeEqual } from 'node:crypto';
import type { ConsoleSession } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { RequestContext } from './request-context.ts';

/** The header by which a write shows the token of its session. */
export const CSRF_HEADER = 'x-csrf-token';

export interface SessionCookieOptions {
  readonly serviceName: string;
  /** Public origin; its scheme says whether the cookie travels on HTTPS alone. */
  readonly publicUrl: string;
}

/** Reads and writes the cookie of one service. */
export class SessionCookie {
  readonly #name: string;
  readonly #attributes: string;
  readonly #pattern: RegExp;
  readonly #publicOrigin: string;

  constructor({ serviceName, publicUrl }: SessionCookieOptions) {
    const { protocol, origin } = new URL(publicUrl);
    const isSecure = protocol === 'https:';
    // With this prefix a browser takes the cookie from this origin alone, and for all of it.
    this.#name = `${isSecure ? '__Host-' : ''}${serviceName}_session`;
    this.#attributes = `Path=/; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;
    this.#pattern = new RegExp(String.raw`(?:^|;\s*)${this.#name}=([\w-]+)(?:;|$)`);
    this.#publicOrigin = origin;
  }

  /** The secret in the `Cookie` header of a request. */
  secretIn(header: string): string | undefined {
    return this.#pattern.exec(header)?.[1];
  }

  /** The value of `Set-Cookie` that begins a session. */
  set(secret: string, lifeMs: number): string {
    return `${this.#name}=${secret}; Max-Age=${lifeMs / SECOND_MS}; ${this.#attributes}`;
  }

  /** The value of `Set-Cookie` that ends it. */
  get clear(): string {
    return `${this.#name}=; Max-Age=0; ${this.#attributes}`;
  }

  /** Whether a request comes from no page of another origin. */
  isSameOrigin({ headers }: RequestContext): boolean {
    // Every site on this machine has this host name, and another port is another origin of one site.
    const site = headers['sec-fetch-site'];
    if (site !== undefined) return site === 'same-origin' || site === 'none';
    const { origin, host } = headers;
    if (origin === undefined || origin === this.#publicOrigin) return true;
    return URL.canParse(origin) && new URL(origin).host === host;
  }

  /**
   * Throws `CSRF_CHECK_FAILED` for a request that a page of another origin makes a browser send.
   */
  requireSameOrigin(context: RequestContext): void {
    if (!this.isSameOrigin(context)) {
      throw foreign('The request comes from a page of another origin');
    }
  }

  /** The same for a request of a session; a write shows the token of the session besides. */
  requireOwnPage(context: RequestContext, session: ConsoleSession): void {
    this.requireSameOrigin(context);
    const { method } = context.request;
    if (method === 'GET' || method === 'HEAD') return;
    const given = Buffer.from(context.headers[CSRF_HEADER] ?? '');
    const wanted = Buffer.from(session.csrfToken);
    if (given.length === wanted.length && timingSafeEqual(given, wanted)) return;
    throw foreign('A write of a session needs its token in the header X-CSRF-Token');
  }
}

function foreign(message: string): Fault {
  return new Fault('CSRF_CHECK_FAILED', { message });
}
