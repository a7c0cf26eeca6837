/**
 * Challenges for wallets that make an API key: a JSON Web Token of ours (HS256) that the wallet
 * signs as text. It proves that the signature is fresh and meant for this service.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';

/** decisions.md 6: a challenge lives for 15 minutes. */
const LIFE_MS = 15 * MINUTE_MS;
const MAX_CHARS = 512;
const HEADER = encode({ alg: 'HS256', typ: 'JWT' });

export interface KeyChallenge {
  readonly id: string;
  readonly expiresMs: number;
}

export class KeyChallenges {
  readonly #secret: string;
  readonly #clock: Clock;
  readonly #ids: Ids;

  constructor(options: { readonly secret: string; readonly clock: Clock; readonly ids: Ids }) {
    this.#secret = options.secret;
    this.#clock = options.clock;
    this.#ids = options.ids;
  }

  mint(): string {
    const nowMs = this.#clock.nowMs();
    const claims = encode({
      iat: Math.floor(nowMs / SECOND_MS),
      exp: Math.floor((nowMs + LIFE_MS) / SECOND_MS),
      jti: this.#ids.hex(16),
    });
    return `${HEADER}.${claims}.${this.#mac(claims)}`;
  }

  /** Throws a 401 Fault for a token that is not ours or is over. */
  read(token: string): KeyChallenge {
    const [header, claims = '', mac = '', ...rest] = token.slice(0, MAX_CHARS).split('.');
    const expected = Buffer.from(this.#mac(claims));
    const given = Buffer.from(mac);
    const isOurs =
      header === HEADER &&
      rest.length === 0 &&
      given.length === expected.length &&
      timingSafeEqual(given, expected);
    if (!isOurs) throw refused('The token is not one of this service; get a new one');
    const { exp, jti } = decode(claims);
    const expiresMs = exp * SECOND_MS;
    if (expiresMs <= this.#clock.nowMs()) throw refused('The token has expired; get a new one');
    return { id: jti, expiresMs };
  }

  #mac(claims: string): string {
    return createHmac('sha256', this.#secret).update(`${HEADER}.${claims}`).digest('base64url');
  }
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

function decode(claims: string): { exp: number; jti: string } {
  // Written by `mint`: the signature was checked.
  return JSON.parse(Buffer.from(claims, 'base64url').toString()) as { exp: number; jti: string };
}

export function refused(message: string): Fault {
  return new Fault('X402_INVALID_SIGN_IN', { message });
}
