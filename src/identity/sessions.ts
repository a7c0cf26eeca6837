/**
 * Console sessions and the links that start them. A session acts as the key, wallet or member that
 * signed in, with the same rights, and ends with it. Its row stores only the SHA-256 of the secret.
 * Sessions are not cached in processes, so an ended session is invalid at once everywhere. Sessions and
 * links expire by the clock of the database, because that of a process can be wrong.
 */
import { type Clock, DAY_MS, MINUTE_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Ids, sha256Hex } from '../core/ids.ts';
import type { Row, Store } from '../db/db.ts';
import type { Caller, ConsoleSession, SessionMember } from './caller.ts';
import type { KnownKeys } from './known-keys.ts';

export const SESSION_LIFE_MS = 7 * DAY_MS;
/** Per key or wallet; a further session ends the oldest. */
const MAX_SESSIONS = 50;
const LINK_LIFE_MS = 15 * MINUTE_MS;
const WRITE_USE_EVERY_MS = MINUTE_MS;
const SECRET_BYTES = 32;
/** Longer than any secret: bounds the input of the hash. */
const MAX_SECRET_CHARS = 100;
const MAX_AGENT_CHARS = 200;
const PRUNED_AT_ONCE = 1_000;
const NOT_DURABLE = { durable: false } as const;

const SESSION_COLUMNS = `id, account_id, key_id, wallet, created_ms, expires_ms, last_used_ms,
  user_agent, address`;

export interface SessionOwner extends Pick<Caller, 'accountId' | 'keyId' | 'wallet'> {
  /** The sign-in of a member at a provider. */
  readonly signIn?: ProviderSignIn;
}

export interface ProviderSignIn {
  /** Id of the provider. */
  readonly provider: string;
  readonly idToken: string;
  readonly lifeMs: number;
}

export interface SignInPlace {
  readonly userAgent: string;
  readonly address: string;
}

/** A valid session. `caller` belongs to its key; for the session of a wallet it is `undefined`. */
export interface OpenSession {
  readonly session: ConsoleSession;
  readonly caller: Caller | undefined;
}

export interface SessionParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly keys: KnownKeys;
}

export class Sessions {
  readonly #parts: SessionParts;

  constructor(parts: SessionParts) {
    this.#parts = parts;
  }

  /** Starts a session; returns its secret, which is for the cookie only. */
  async begin(
    { accountId, keyId, wallet = '', signIn }: SessionOwner,
    { userAgent, address }: SignInPlace,
  ): Promise<{ readonly session: ConsoleSession; readonly secret: string }> {
    const { store, clock, ids } = this.#parts;
    const secret = ids.bytes(SECRET_BYTES).toString('base64url');
    const nowMs = clock.nowMs();
    const row = {
      id: `session_${ids.hex(12)}`,
      account_id: accountId,
      key_id: keyId,
      wallet,
      created_ms: nowMs,
      expires_ms: nowMs + (signIn?.lifeMs ?? SESSION_LIFE_MS),
      last_used_ms: nowMs,
      user_agent: userAgent.slice(0, MAX_AGENT_CHARS),
      address,
    };
    await store.transaction(async (tx) => {
      await tx.query(
        `INSERT INTO identity_session (${SESSION_COLUMNS}, secret_sha256, provider, id_token)
         VALUES ($1, $2, $3, $4, $5, now_ms($5) - $5 + $6, $7, $8, $9, $10, $11, $12)`,
        [...Object.values(row), sha256Hex(secret), signIn?.provider ?? '', signIn?.idToken ?? ''],
      );
      await tx.query(
        `DELETE FROM identity_session WHERE account_id = $1 AND key_id = $2 AND id NOT IN (
           SELECT id FROM identity_session WHERE account_id = $1 AND key_id = $2
           ORDER BY created_ms DESC, id DESC LIMIT ${MAX_SESSIONS})`,
        [accountId, keyId],
      );
    });
    return { session: sessionOf(row, secret), secret };
  }

  /**
   * Returns the session of a cookie. Throws `AUTHENTICATION_FAILED` if it is unknown or expired, or
   * its key is; `API_ACCESS_DISABLED` if the account is disabled.
   */
  async open(secret: string): Promise<OpenSession> {
    const { store, clock } = this.#parts;
    if (secret.length > MAX_SECRET_CHARS) throw sessionEnded();
    const nowMs = clock.nowMs();
    const [row] = await store.query(
      `SELECT ${SESSION_COLUMNS},
       (SELECT disabled FROM identity_account a WHERE a.id = s.account_id) AS disabled,
       (SELECT id FROM identity_key k WHERE k.id = s.key_id AND k.revoked_ms IS NULL) AS valid_key,
       member_id, email, name, role
       FROM identity_session s LEFT JOIN
         (SELECT id AS member_id, key_id AS member_key, email, name, role FROM identity_member) m
         ON member_key = key_id WHERE secret_sha256 = $1 AND expires_ms > now_ms($2)`,
      [sha256Hex(secret), nowMs],
    );
    if (row === undefined) throw sessionEnded();
    if (row['disabled'] === 1n) throw new Fault('API_ACCESS_DISABLED');
    const session = sessionOf(row, secret);
    if (nowMs - session.lastUsedMs >= WRITE_USE_EVERY_MS) await this.#writeUse(session.id, nowMs);
    if (session.keyId === '') return { session, caller: undefined };
    if (row['valid_key'] === null) throw sessionEnded();
    const { caller, expiresMs } = await this.#parts.keys.bounded(session.keyId);
    if (expiresMs !== undefined && expiresMs <= nowMs) throw sessionEnded();
    const member = memberOf(row);
    if (member !== undefined) return { session, caller: { ...caller, session, member } };
    // A member whose row is gone has left the account.
    if (caller.keyKind === 'MEMBER') throw sessionEnded();
    return { session, caller: { ...caller, session } };
  }

  async #writeUse(id: string, nowMs: number): Promise<void> {
    const sql = 'UPDATE identity_session SET last_used_ms = $2 WHERE id = $1';
    await this.#parts.store.transaction((tx) => tx.query(sql, [id, nowMs]), NOT_DURABLE);
  }

  /** Returns valid sessions, newest first; with `keyId` those of one key, or of the wallet. */
  async list(accountId: string, keyId: string | undefined): Promise<readonly ConsoleSession[]> {
    const { store, clock } = this.#parts;
    const rows = await store.query(
      `SELECT ${SESSION_COLUMNS},
       (SELECT email FROM identity_member m WHERE m.key_id = s.key_id) AS email
       FROM identity_session s
       WHERE account_id = $1 AND ($2 = '*' OR key_id = $3) AND expires_ms > now_ms($4)
       AND (key_id = '' OR EXISTS (SELECT 1 FROM identity_key k WHERE k.id = s.key_id
         AND k.revoked_ms IS NULL AND (k.expires_ms IS NULL OR k.expires_ms > $4)))
       ORDER BY created_ms DESC, id DESC`,
      [accountId, keyId === undefined ? '*' : '=', keyId ?? '', clock.nowMs()],
    );
    return rows.map((row) => sessionOf(row, ''));
  }

  /** Ends a session; returns its sign-in at a provider, or `undefined` if there is no such session. */
  async end(
    accountId: string,
    keyId: string | undefined,
    id: string,
  ): Promise<Omit<ProviderSignIn, 'lifeMs'> | undefined> {
    const [row] = await this.#parts.store.query<{ provider: string; id_token: string }>(
      `DELETE FROM identity_session WHERE id = $1 AND account_id = $2
       AND ($3 = '*' OR key_id = $4) RETURNING provider, id_token`,
      [id, accountId, keyId === undefined ? '*' : '=', keyId ?? ''],
    );
    return row && { provider: row.provider, idToken: row.id_token };
  }

  /** Moves a session to another account of the same person. */
  async moveTo(
    { id }: Pick<ConsoleSession, 'id'>,
    { accountId, keyId }: Pick<SessionOwner, 'accountId' | 'keyId'>,
  ): Promise<void> {
    const sql = 'UPDATE identity_session SET account_id = $2, key_id = $3 WHERE id = $1';
    await this.#parts.store.query(sql, [id, accountId, keyId]);
  }

  async endBySecret(secret: string): Promise<void> {
    if (secret.length > MAX_SECRET_CHARS) return;
    await this.#parts.store.query('DELETE FROM identity_session WHERE secret_sha256 = $1', [
      sha256Hex(secret),
    ]);
  }

  /** Returns a secret that starts one session of a key, valid for 15 minutes. */
  async issueLink(accountId: string, keyId: string): Promise<string> {
    const { store, clock, ids } = this.#parts;
    const secret = ids.bytes(SECRET_BYTES).toString('base64url');
    await store.query(
      `INSERT INTO identity_sign_in_link (secret_sha256, account_id, key_id, expires_ms)
       VALUES ($1, $2, $3, now_ms($4) + $5)`,
      [sha256Hex(secret), accountId, keyId, clock.nowMs(), LINK_LIFE_MS],
    );
    return secret;
  }

  /** Consumes a link. Throws `AUTHENTICATION_FAILED` if it is unknown, used or expired. */
  async takeLink(secret: string): Promise<SessionOwner> {
    const { store, clock } = this.#parts;
    const isShaped = secret.length <= MAX_SECRET_CHARS;
    const [row] = isShaped
      ? await store.query<{ account_id: string; key_id: string }>(
          `DELETE FROM identity_sign_in_link WHERE secret_sha256 = $1 AND expires_ms > now_ms($2)
           RETURNING account_id, key_id`,
          [sha256Hex(secret), clock.nowMs()],
        )
      : [];
    if (row === undefined) {
      throw new Fault('AUTHENTICATION_FAILED', {
        message:
          'The sign-in link was used, or is older than 15 minutes; "farebox sign-in" prints a new one',
      });
    }
    return { accountId: row.account_id, keyId: row.key_id };
  }

  async prune(): Promise<void> {
    const { store, clock } = this.#parts;
    const now = [clock.nowMs()];
    await store.query(
      `DELETE FROM identity_session WHERE id IN (
         SELECT id FROM identity_session WHERE expires_ms <= now_ms($1) LIMIT ${PRUNED_AT_ONCE})`,
      now,
    );
    await store.query('DELETE FROM identity_sign_in_link WHERE expires_ms <= now_ms($1)', now);
  }
}

function memberOf(row: Row): SessionMember | undefined {
  if (row['member_id'] === null) return undefined;
  return {
    id: String(row['member_id']),
    email: String(row['email']),
    name: String(row['name']),
    role: String(row['role']) as SessionMember['role'], // written by this folder only
  };
}

function sessionEnded(): Fault {
  return new Fault('AUTHENTICATION_FAILED', {
    message: 'The session has ended; sign in again',
  });
}

/** Derives the CSRF token from the secret: only a page of the same origin can read it. */
function csrfTokenOf(secret: string): string {
  return sha256Hex(`csrf ${secret}`);
}

function sessionOf(row: Readonly<Record<string, Row[string] | number>>, secret: string) {
  const wallet = String(row['wallet']);
  return {
    id: String(row['id']),
    accountId: String(row['account_id']),
    keyId: String(row['key_id']),
    ...(wallet === '' ? {} : { wallet }),
    ...(typeof row['email'] === 'string' ? { email: row['email'] } : {}),
    createdMs: Number(row['created_ms']),
    expiresMs: Number(row['expires_ms']),
    lastUsedMs: Number(row['last_used_ms']),
    userAgent: String(row['user_agent']),
    address: String(row['address']),
    csrfToken: secret === '' ? '' : csrfTokenOf(secret),
  } satisfies ConsoleSession;
}
