/**
 * The cookie of a console session. Requests with it must come from a page of this origin, and
 * writes must carry the CSRF token of the session.
 */
import { timingSafeEqual } from 'node:crypto';
import type { ConsoleSession } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { RequestContext } from './request-context.ts';

export const CSRF_HEADER = 'x-csrf-token';

export interface SessionCookieOptions {
  readonly serviceName: string;
  /** With `https:`, the cookie is sent over HTTPS only. */
  readonly publicUrl: string;
  /** The second part of its name. Default: `session`. */
  readonly purpose?: string;
}

export class SessionCookie {
  readonly #name: string;
  readonly #attributes: string;
  readonly #pattern: RegExp;
  readonly #publicOrigin: string;

  constructor({ serviceName, publicUrl, purpose = 'session' }: SessionCookieOptions) {
    const { protocol, origin } = new URL(publicUrl);
    const isSecure = protocol === 'https:';
    // With this prefix browsers accept the cookie from this origin only.
    this.#name = `${isSecure ? '__Host-' : ''}${serviceName}_${purpose}`;
    this.#attributes = `Path=/; HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;
    this.#pattern = new RegExp(String.raw`(?:^|;\s*)${this.#name}=([\w-]+)(?:;|$)`);
    this.#publicOrigin = origin;
  }

  /** Returns the secret in a `Cookie` header. */
  secretIn(header: string): string | undefined {
    return this.#pattern.exec(header)?.[1];
  }

  /** The `Set-Cookie` value that stores a secret. */
  set(secret: string, lifeMs: number): string {
    return `${this.#name}=${secret}; Max-Age=${lifeMs / SECOND_MS}; ${this.#attributes}`;
  }

  /** The `Set-Cookie` value that removes it. */
  get clear(): string {
    return `${this.#name}=; Max-Age=0; ${this.#attributes}`;
  }

  /** Whether the request comes from this origin, or from no page at all. */
  isSameOrigin({ headers }: RequestContext): boolean {
    // `same-site` is not enough: another port of this host is the same site.
    const site = headers['sec-fetch-site'];
    if (site !== undefined) return site === 'same-origin' || site === 'none';
    const { origin, host } = headers;
    if (origin === undefined || origin === this.#publicOrigin) return true;
    return URL.canParse(origin) && new URL(origin).host === host;
  }

  /** Throws `CSRF_CHECK_FAILED` for a request from a page of another origin. */
  requireSameOrigin(context: RequestContext): void {
    if (!this.isSameOrigin(context)) {
      throw foreign('The request comes from a page of another origin');
    }
  }

  /** As `requireSameOrigin`; a write also needs the token of the session. */
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
