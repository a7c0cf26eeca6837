/**
 * Short-lived bearer tokens for signed-in wallets, because OpenAI SDKs cannot sign each request. A token
 * contains its wallet and its expiry under an HMAC whose secret all processes share, so a forged token
 * costs no database read. Its row shows whether it was revoked and whether it has a spend limit. Each
 * process caches the row for 3 s, so a revoked token can be accepted for that time.
 */
import { type Clock, DAY_MS, SECOND_MS, isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import { type Nano, nano } from '../../core/money.ts';
import { assert } from '../../core/assert.ts';
import { type Queryable, type Store, deleteInBatches, oneAtATime } from '../../db/db.ts';
import { isSameMac, macOf } from '../secrets.ts';
import { remember } from '../bounded.ts';
import { refused } from './key-challenges.ts';

export interface TokenLimits {
  readonly usdNano: Nano | undefined;
  readonly diemNano: Nano | undefined;
}

export interface TokenBearer {
  readonly wallet: string;
  /** The cap in the ledger that limits the requests of the token; `undefined` without a limit. */
  readonly capId: string | undefined;
  readonly expiresMs: number;
}

/** Writes the caps of the ledger in the transactions of the tokens. */
export interface TokenCaps {
  readonly set: (tx: Queryable, id: string, wallet: string, limits: TokenLimits) => Promise<void>;
  readonly drop: (tx: Queryable, ids: readonly string[]) => Promise<void>;
}

export interface SessionOptions {
  readonly secret: string;
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly lifeMs: number;
  readonly prefix: string;
  readonly caps: TokenCaps;
}

interface TokenRow {
  readonly id: string;
  readonly wallet: string;
  readonly created_ms: bigint;
  readonly expires_ms: bigint;
  readonly usd_limit_nano: bigint | null;
  readonly diem_limit_nano: bigint | null;
}

const MAX_TOKEN_CHARS = 512;
const MAX_LIVE = 100;
const CACHE_MS = 3 * SECOND_MS;
const MAX_CACHED = 10_000;
/** Requests of a token are settled within this time after its end. */
const KEEP_ENDED_MS = DAY_MS;
const PRUNED_AT_ONCE = 500;

export class WalletTokens {
  readonly #options: SessionOptions;
  readonly #known = new Map<string, { readonly isCapped: boolean; readonly untilMs: number }>();
  readonly prefix: string;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.prefix = options.prefix;
  }

  /** Creates a token for a wallet that has signed in. Throws a Fault if the wallet has too many. */
  async mint(wallet: string, limits: TokenLimits) {
    const { store, clock, ids, lifeMs, caps } = this.#options;
    const nowMs = clock.nowMs();
    const expiresMs = nowMs + lifeMs;
    const id = `wallet-token-${ids.hex(12)}`;
    await store.transaction(async (tx) => {
      await oneAtATime(tx, store.dialect, `payments_wallet_token ${wallet}`);
      const rows = await tx.query(
        `INSERT INTO payments_wallet_token (id, wallet, created_ms, expires_ms, usd_limit_nano,
           diem_limit_nano)
         SELECT $1, $2, $3, $4, $5, $6
         WHERE (SELECT COUNT(*) FROM payments_wallet_token WHERE wallet = $2 AND expires_ms > $3) < $7
         RETURNING id`,
        [id, wallet, nowMs, expiresMs, limits.usdNano ?? null, limits.diemNano ?? null, MAX_LIVE],
      );
      if (rows.length === 0) {
        throw new Fault('INVALID_REQUEST', {
          message: `A wallet can have at most ${MAX_LIVE} tokens; revoke one, or wait until one has expired`,
        });
      }
      if (hasLimit(limits)) await caps.set(tx, id, wallet, limits);
    });
    const body = Buffer.from(`${expiresMs}.${id}.${wallet}`, 'latin1').toString('base64url');
    return { id, token: `${this.prefix}${body}.${this.#mac(body)}`, expiresAt: isoTime(expiresMs) };
  }

  /** The wallet of a token. Throws a 401 Fault if the token is forged, expired or revoked. */
  async verify(token: string): Promise<TokenBearer> {
    const { expiresMs, id, wallet } = this.#read(token);
    if (expiresMs <= this.#options.clock.nowMs())
      throw refused('The wallet token has expired, sign in again');
    const isCapped = await this.requireLive(id);
    return { wallet, capId: isCapped ? id : undefined, expiresMs };
  }

  /** Whether a token has a limit. Throws a 401 Fault if it has expired or was revoked. */
  async requireLive(id: string): Promise<boolean> {
    const { store, clock } = this.#options;
    const nowMs = clock.monotonicMs();
    const known = this.#known.get(id);
    if (known !== undefined && known.untilMs > nowMs) return known.isCapped;
    const [row] = await store.query<TokenRow>(
      'SELECT * FROM payments_wallet_token WHERE id = $1 AND expires_ms > $2',
      [id, clock.nowMs()],
    );
    if (row === undefined) throw refused('The wallet token was revoked, sign in again');
    const isCapped = hasLimit(limitsOf(row));
    remember(this.#known, id, { isCapped, untilMs: nowMs + CACHE_MS }, MAX_CACHED);
    return isCapped;
  }

  async list(wallet: string) {
    const rows = await this.#options.store.query<TokenRow>(
      `SELECT * FROM payments_wallet_token WHERE wallet = $1 AND expires_ms > $2
       ORDER BY created_ms DESC, id`,
      [wallet, this.#options.clock.nowMs()],
    );
    return rows.map((row) => ({
      id: row.id,
      createdMs: Number(row.created_ms),
      expiresMs: Number(row.expires_ms),
      limits: limitsOf(row),
    }));
  }

  /** Ends a token; returns `false` if the wallet has no such token. */
  async revoke(wallet: string, id: string): Promise<boolean> {
    const { store, clock } = this.#options;
    const nowMs = clock.nowMs();
    const rows = await store.query(
      `UPDATE payments_wallet_token SET expires_ms = $3
       WHERE id = $1 AND wallet = $2 AND expires_ms > $3 RETURNING id`,
      [id, wallet, nowMs],
    );
    this.#known.delete(id);
    return rows.length === 1;
  }

  /** Deletes tokens that ended a day ago, with their caps. */
  async prune(): Promise<void> {
    const { store, clock, caps } = this.#options;
    await deleteInBatches(PRUNED_AT_ONCE, () =>
      store.transaction(async (tx) => {
        const rows = await tx.query<{ id: string }>(
          `DELETE FROM payments_wallet_token WHERE id IN (
             SELECT id FROM payments_wallet_token WHERE expires_ms < $1 LIMIT $2) RETURNING id`,
          [clock.nowMs() - KEEP_ENDED_MS, PRUNED_AT_ONCE],
        );
        const ended = rows.map(({ id }) => id);
        if (ended.length > 0) await caps.drop(tx, ended);
        return rows;
      }),
    );
  }

  #read(token: string): { expiresMs: number; id: string; wallet: string } {
    const [body, mac, ...rest] = token.slice(this.prefix.length).split('.');
    const isShaped =
      token.startsWith(this.prefix) && token.length <= MAX_TOKEN_CHARS && rest.length === 0;
    if (!isShaped || !body || !mac || !isSameMac(mac, this.#mac(body)))
      throw refused('The wallet token is not valid, sign in again');
    const [expiresMs, id, wallet] = Buffer.from(body, 'base64url').toString('latin1').split('.');
    assert(id !== undefined && wallet !== undefined, 'a token with our MAC is complete');
    return { expiresMs: Number(expiresMs), id, wallet };
  }

  #mac(body: string): string {
    return macOf(this.#options.secret, this.prefix + body);
  }
}

function limitsOf(row: TokenRow): TokenLimits {
  return {
    usdNano: row.usd_limit_nano === null ? undefined : nano(row.usd_limit_nano),
    diemNano: row.diem_limit_nano === null ? undefined : nano(row.diem_limit_nano),
  };
}

function hasLimit({ usdNano, diemNano }: TokenLimits): boolean {
  return usdNano !== undefined || diemNano !== undefined;
}
