/**
 * Wallet tokens: a signed-in wallet gets a short-lived bearer token, because OpenAI SDKs cannot sign
 * each request. A token carries its wallet and its end under an HMAC whose secret all processes
 * share, so checking one costs no database read; it cannot be revoked, so its life is short.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { isoTime } from '../../kernel/clock.ts';
import type { Clock } from '../../kernel/clock.ts';
import { Fault } from '../../kernel/faults.ts';
import type { Ids } from '../../kernel/ids.ts';
import { walletIdentity, walletKind } from '../../kernel/addresses.ts';

export interface WalletToken {
  readonly token: string;
  /** ISO 8601. */
  readonly expiresAt: string;
}

const MAX_TOKEN_CHARS = 512;

export class WalletSessions {
  readonly #secret: string;
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #lifeMs: number;
  /** For example `svc_wallet_`. */
  readonly prefix: string;

  constructor(options: {
    readonly secret: string;
    readonly clock: Clock;
    readonly ids: Ids;
    readonly lifeMs: number;
    readonly prefix: string;
  }) {
    this.#secret = options.secret;
    this.#clock = options.clock;
    this.#ids = options.ids;
    this.#lifeMs = options.lifeMs;
    this.prefix = options.prefix;
  }

  /** A token for the identity of a wallet that has just signed in. */
  mint(wallet: string): WalletToken {
    const expiresMs = this.#clock.nowMs() + this.#lifeMs;
    const claims = Buffer.from(`${expiresMs}.${this.#ids.hex(8)}.${wallet}`, 'latin1');
    const body = claims.toString('base64url');
    return { token: `${this.prefix}${body}.${this.#mac(body)}`, expiresAt: isoTime(expiresMs) };
  }

  /** The wallet of a token. Throws a 401 Fault when it is forged or over. */
  verify(token: string): string {
    const [body, mac, ...rest] = token.slice(this.prefix.length).split('.');
    const isShaped =
      token.startsWith(this.prefix) && token.length <= MAX_TOKEN_CHARS && rest.length === 0;
    if (!isShaped || !body || !mac || !this.#isOwn(body, mac))
      throw refuse('The wallet token is not valid, sign in again');
    const [expiresMs, , wallet] = Buffer.from(body, 'base64url').toString('latin1').split('.');
    if (!wallet || walletKind(wallet) === undefined)
      throw refuse('The wallet token is not valid, sign in again');
    if (Number(expiresMs) <= this.#clock.nowMs())
      throw refuse('The wallet token has expired, sign in again');
    return walletIdentity(wallet);
  }

  #isOwn(body: string, mac: string): boolean {
    const expected = Buffer.from(this.#mac(body), 'latin1');
    const given = Buffer.from(mac, 'latin1');
    return expected.length === given.length && timingSafeEqual(expected, given);
  }

  #mac(body: string): string {
    return createHmac('sha256', this.#secret).update(this.prefix).update(body).digest('base64url');
  }
}

function refuse(message: string): Fault {
  return new Fault('X402_INVALID_SIGN_IN', { message, canRetry: false });
}
