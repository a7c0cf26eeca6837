/**
 * Accounts, API keys, and the lookup of presented secrets. Every statement on keys contains the
 * account id, so that an owner cannot access keys of others.
 */
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Ids, sha256Hex } from '../core/ids.ts';
import { type Queryable, type Row, type Store, oneAtATime } from '../db/db.ts';
import { ACCOUNT_COLUMNS, type Account, accountOf, rulesOf, storedPrices } from './accounts.ts';
import { type PlanOf, PlanTerms } from './plan-terms.ts';
import { type Caller, type Plan, walletAccountId } from './caller.ts';
import { type ApiKey, KEY_COLUMNS, OWNER_COLUMNS, keyOf, newSecret, ownerValues } from './keys.ts';
import { KnownKeys } from './known-keys.ts';
import { BUDGET_COLUMNS, type Budget, budgetOf } from './budgets.ts';
import { Members } from './members.ts';
import { Sessions } from './sessions.ts';

export { type Account, accountNames } from './accounts.ts';
export type { PlanOf } from './plan-terms.ts';
export {
  type Caller,
  type CallerPayment,
  type ConsoleSession,
  type KeyKind,
  type LimitOverrides,
  MODEL_PRIVACY,
  type ModelPrivacy,
  type Plan,
  accountIdOf,
  paymentOnlyBucket,
  walletAccountId,
  walletOfAccount,
  walletCaller,
} from './caller.ts';
export {
  LIMIT_PERIODS,
  type LimitPeriod,
  type Budget,
  type BudgetOf,
  type CallerBudgets,
  budgetCap,
  budgetsFor,
  isEachValue,
} from './budgets.ts';
export { type ApiKey, accountOfKey } from './keys.ts';
export type { KnownKeys } from './known-keys.ts';
export { IDENTITY_MIGRATIONS } from './migrations.ts';
export type { Invitation, Member, Members } from './members.ts';
export { SESSION_LIFE_MS, type SessionOwner, type Sessions } from './sessions.ts';
export { SignInProviders } from './sign-in-providers.ts';

const WRITE_LAST_USE_EVERY_MS = 20_000;
const SECRET_BYTES = 32;

export interface AccountPlace {
  readonly createdMs: number;
  readonly id: string;
}

interface AccountPage {
  readonly limit: number;
  readonly after?: AccountPlace | undefined;
}

interface AccountFilter {
  readonly search?: string | undefined;
  readonly plan?: Plan | undefined;
  readonly kind?: 'account' | 'wallet' | undefined;
}

export interface IdentityParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  /** The service name in upper case: the prefix of the secrets. */
  readonly keyPrefix: string;
  /** Default: the default plans with the list prices. */
  readonly planOf?: PlanOf;
}

interface KeyFilter {
  readonly revoked?: boolean;
  readonly parentId?: string;
}

interface KeyPage {
  readonly limit: number;
  readonly offset: number;
}

export type NewKey = Omit<ApiKey, 'id' | 'createdMs' | 'revokedMs' | 'lastUsedMs' | 'last6'>;

export class Identity {
  readonly sessions: Sessions;
  readonly members: Members;
  readonly #parts: IdentityParts;
  readonly #planTerms: PlanTerms;
  readonly keys: KnownKeys;
  readonly #stopWriting: () => void;

  constructor(parts: IdentityParts) {
    this.#parts = parts;
    this.#planTerms = new PlanTerms(parts.planOf);
    this.keys = new KnownKeys({ ...parts, planTerms: this.#planTerms });
    this.sessions = new Sessions({ ...parts, keys: this.keys });
    this.members = new Members({ ...parts, identity: this });
    this.#stopWriting = parts.clock.every(WRITE_LAST_USE_EVERY_MS, () => {
      this.keys.writeLastUse().catch(() => undefined); // the next round writes the same times
    });
  }

  async createAccount(
    name: string,
    plan: Plan,
    tx: Queryable = this.#parts.store,
    id = `acct_${this.#parts.ids.hex(12)}`,
  ): Promise<Account> {
    const createdMs = this.#parts.clock.nowMs();
    await tx.query(
      `INSERT INTO identity_account (id, name, plan, disabled, limits, created_ms)
       VALUES ($1, $2, $3, 0, '{}', $4)`,
      [id, name, plan, createdMs],
    );
    return { id, name, plan, disabled: false, isOperator: false, limits: {}, createdMs };
  }

  /** Throws `ACCOUNT_EXISTS` if an account has the name. */
  async createNamedAccount(name: string, plan: Plan, tx: Queryable): Promise<Account> {
    await this.requireFreeName(name, '', tx);
    return this.createAccount(name, plan, tx);
  }

  /** Throws `ACCOUNT_EXISTS` if another account than `ownId` has the name; locks it until the transaction ends. */
  async requireFreeName(name: string, ownId: string, tx: Queryable): Promise<void> {
    await oneAtATime(tx, this.#parts.store.dialect, 'identity_account name');
    const sql = 'SELECT id FROM identity_account WHERE name = $1 AND id <> $2';
    const [taken] = await tx.query<{ id: string }>(sql, [name, ownId]);
    if (taken === undefined) return;
    throw new Fault('ACCOUNT_EXISTS', {
      message: `An account named "${name}" exists (${taken.id}); choose another name`,
    });
  }

  /** The account of a wallet; creates it with the first credit or the first key. */
  async openWalletAccount(
    address: string,
    tx: Queryable = this.#parts.store,
    createdMs = this.#parts.clock.nowMs(),
  ): Promise<string> {
    const id = walletAccountId(address);
    await tx.query(
      `INSERT INTO identity_account (id, name, plan, disabled, limits, created_ms)
       VALUES ($1, $2, 'paid', 0, '{}', $3) ON CONFLICT (id) DO NOTHING`,
      [id, id.slice(walletAccountId('').length), createdMs],
    );
    return id;
  }

  /** Adds plan, limits, prices and budgets of its account to a caller. Throws `API_ACCESS_DISABLED`. */
  async boundedWallet(caller: Caller): Promise<Caller> {
    const rows = await this.#parts.store.query(
      `SELECT a.disabled AS disabled, a.plan AS plan, a.limits AS limits, a.prices AS prices, b.*
       FROM identity_account a
       LEFT JOIN (SELECT ${BUDGET_COLUMNS} FROM identity_budget WHERE account_id = $1) b ON 1 = 1
       WHERE a.id = $1 ORDER BY b.created_ms, b.id`,
      [caller.accountId],
    );
    if (rows.some(({ disabled }) => disabled !== 0n)) throw new Fault('API_ACCESS_DISABLED');
    const [account] = rows;
    if (account === undefined) return caller;
    const { plan, limits: accountLimits } = rulesOf(account);
    const terms = this.#planTerms.of(plan, storedPrices(account));
    const owner = { ...caller, ...terms, accountLimits };
    const budgets = rows.filter(({ id }) => id !== null).map(budgetOf);
    return budgets.length === 0 ? owner : { ...owner, budgets: { parentIds: [], budgets } };
  }

  /** Oldest first. */
  async accounts({ limit, after }: AccountPage): Promise<Account[]> {
    const beyond = after === undefined ? '' : 'WHERE (created_ms, id) > ($2, $3)';
    const place = after === undefined ? [] : [after.createdMs, after.id];
    return await this.#accounts(`${beyond} ORDER BY created_ms, id LIMIT $1`, [limit, ...place]);
  }

  /** Returns the oldest account that is not a wallet. */
  async oldestAccount(): Promise<Account | undefined> {
    const where = `WHERE id NOT LIKE 'wallet:%' ORDER BY created_ms, id LIMIT 1`;
    return (await this.#accounts(where))[0];
  }

  /** Oldest first; several if they were made before names were unique. */
  async accountsNamed(name: string, limit: number): Promise<Account[]> {
    const where = 'WHERE name = $1 ORDER BY created_ms, id LIMIT $2';
    return await this.#accounts(where, [name, limit]);
  }

  /** The oldest account with a name. Names that are looked up and created stay unique until the transaction ends. */
  async namedAccount(name: string, tx: Queryable): Promise<Account | undefined> {
    await oneAtATime(tx, this.#parts.store.dialect, 'identity_account name');
    const where = 'WHERE name = $1 ORDER BY created_ms, id LIMIT 1';
    return (await this.#accounts(where, [name], tx))[0];
  }

  /** The oldest account of the operator. */
  async operatorAccount(tx: Queryable = this.#parts.store): Promise<Account | undefined> {
    const where = 'WHERE is_operator = 1 ORDER BY created_ms, id LIMIT 1';
    return (await this.#accounts(where, [], tx))[0];
  }

  /** Newest first; a search or a plan filter reads every account. */
  async searchAccounts(
    { search, plan, kind }: AccountFilter,
    { limit, after }: AccountPage,
  ): Promise<Account[]> {
    const parameters: (string | number)[] = [];
    const wanted: string[] = [];
    const add = (value: string | number): string => `$${parameters.push(value)}`;
    if (search !== undefined) {
      const text = search.replaceAll(/[\\%_]/g, String.raw`\$&`).toLowerCase();
      wanted.push(
        String.raw`(lower(id) LIKE ${add(`${text}%`)} ESCAPE '\' OR lower(name) LIKE ${add(`%${text}%`)} ESCAPE '\')`,
      );
    }
    if (plan !== undefined) wanted.push(`plan = ${add(plan)}`);
    if (kind !== undefined) wanted.push(`id ${kind === 'wallet' ? '' : 'NOT '}LIKE 'wallet:%'`);
    const { store } = this.#parts;
    const reader = wanted.length === 0 ? store : store.readerFor('');
    if (after !== undefined) {
      wanted.push(`(created_ms, id) < (${add(after.createdMs)}, ${add(after.id)})`);
    }
    const where = wanted.length === 0 ? '' : `WHERE ${wanted.join(' AND ')}`;
    const clauses = `${where} ORDER BY created_ms DESC, id DESC LIMIT ${add(limit)}`;
    return await this.#accounts(clauses, parameters, reader);
  }

  /** Changes plan, limits, prices or access of an account, in other processes within `REMEMBER_MS`. */
  async updateAccount(account: Account, tx: Queryable = this.#parts.store): Promise<void> {
    const { id, name, plan, disabled, isOperator, limits, prices } = account;
    const flags = [disabled ? 1 : 0, isOperator ? 1 : 0];
    await tx.query(
      `UPDATE identity_account SET name = $2, plan = $3, disabled = $4, is_operator = $5,
       limits = $6, prices = $7 WHERE id = $1`,
      [id, name, plan, ...flags, JSON.stringify(limits), prices ? JSON.stringify(prices) : null],
    );
    this.forget();
  }

  /** Accounts with own prices. */
  async pricedAccounts(limit: number): Promise<Account[]> {
    return await this.#accounts('WHERE prices IS NOT NULL ORDER BY id LIMIT $1', [limit]);
  }

  async findAccount(id: string, tx: Queryable = this.#parts.store): Promise<Account | undefined> {
    return (await this.#accounts('WHERE id = $1', [id], tx))[0];
  }

  async #accounts(
    clauses: string,
    parameters: readonly (string | number)[] = [],
    from: Queryable = this.#parts.store,
  ): Promise<Account[]> {
    const sql = `SELECT ${ACCOUNT_COLUMNS} FROM identity_account ${clauses}`;
    return (await from.query(sql, parameters)).map(accountOf);
  }

  /** Marks an account as the operator's, inside the transaction of the first start. */
  async makeOperator(id: string, tx: Queryable): Promise<void> {
    await tx.query('UPDATE identity_account SET is_operator = 1 WHERE id = $1', [id]);
  }

  /** Throws `API_KEY_LIMIT_REACHED` at `maxActive` valid keys; exact across processes. */
  async createKeyWithin(
    maxActive: number,
    wanted: NewKey,
    tx: Queryable,
  ): Promise<{ readonly key: ApiKey; readonly secret: string }> {
    await this.lockAccount(wanted.accountId, tx);
    const [row] = await tx.query<{ total: bigint }>(
      `SELECT count(*) AS total FROM identity_key WHERE account_id = $1 AND revoked_ms IS NULL
       AND kind <> 'MEMBER' AND (expires_ms IS NULL OR expires_ms > $2)`,
      [wanted.accountId, this.#parts.clock.nowMs()],
    );
    const active = Number(row?.total ?? 0n);
    if (active >= maxActive) {
      throw new Fault('API_KEY_LIMIT_REACHED', {
        message: `The account has ${active} active API keys and may have ${maxActive}; delete one first`,
      });
    }
    return this.createKey(wanted, tx);
  }

  /** Locks the row of an account, for changes of its keys, until the transaction ends. */
  async lockAccount(accountId: string, tx: Queryable): Promise<void> {
    await tx.query('UPDATE identity_account SET name = name WHERE id = $1', [accountId]);
  }

  /** Creates a key; its secret is returned here and stored nowhere. */
  async createKey(
    wanted: NewKey,
    tx: Queryable = this.#parts.store,
  ): Promise<{ readonly key: ApiKey; readonly secret: string }> {
    const { ids, clock, keyPrefix } = this.#parts;
    const secret = newSecret(ids, keyPrefix, wanted.kind);
    const key: ApiKey = {
      ...wanted,
      id: `key_${ids.hex(12)}`,
      last6: secret.slice(-6),
      createdMs: clock.nowMs(),
      revokedMs: undefined,
      lastUsedMs: undefined,
    };
    const { id, accountId, kind, last6, createdMs } = key;
    const own = [id, accountId, kind, last6, createdMs, sha256Hex(secret)];
    await tx.query(
      `INSERT INTO identity_key (id, account_id, kind, last6, created_ms, secret_sha256,
       ${OWNER_COLUMNS.join(', ')}, parent_id)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
      [...own, ...ownerValues(key), key.parentId ?? null],
    );
    return { key, secret };
  }

  /** Creates the key that a member acts through, and returns its id; nothing stores its secret. */
  async createMemberKey(accountId: string, description: string, tx: Queryable): Promise<string> {
    const { ids, clock } = this.#parts;
    const id = `key_${ids.hex(12)}`;
    await tx.query(
      `INSERT INTO identity_key (id, account_id, kind, last6, created_ms, secret_sha256,
       description, limit_period, model_privacy, limits)
       VALUES ($1, $2, 'MEMBER', '', $3, $4, $5, 'EPOCH', 'ALL', '{}')`,
      [id, accountId, clock.nowMs(), sha256Hex(ids.bytes(SECRET_BYTES)), description],
    );
    return id;
  }

  async listKeys(
    accountId: string,
    wanted: KeyFilter,
    { limit, offset }: KeyPage,
  ): Promise<ApiKey[]> {
    const rows = await this.#parts.store.query(
      `SELECT ${KEY_COLUMNS.join(', ')} FROM identity_key WHERE ${listed(wanted)}
       ORDER BY created_ms DESC, id LIMIT $3 OFFSET $4`,
      [accountId, wanted.parentId ?? '', limit, offset],
    );
    return rows.map((row) => this.#keyOf(row));
  }

  async countKeys(accountId: string, wanted: KeyFilter = {}): Promise<number> {
    const [row] = await this.#parts.store.query<{ total: bigint }>(
      `SELECT count(*) AS total FROM identity_key WHERE ${listed(wanted)}`,
      [accountId, wanted.parentId ?? ''],
    );
    return Number(row?.total ?? 0n);
  }

  async findKey(
    accountId: string,
    id: string,
    tx: Queryable = this.#parts.store,
  ): Promise<ApiKey | undefined> {
    const rows = await tx.query(
      `SELECT ${KEY_COLUMNS.join(', ')} FROM identity_key
       WHERE account_id = $1 AND id = $2 AND revoked_ms IS NULL AND kind <> 'MEMBER'`,
      [accountId, id],
    );
    return rows.map((row) => this.#keyOf(row))[0];
  }

  /** Ids of a key and its descendants, revoked ones included, since their spending counts. */
  async idsFrom(accountId: string, id: string, tx: Queryable): Promise<string[]> {
    const rows = await tx.query<{ id: string }>(`${FROM_KEY} SELECT id FROM below`, [
      accountId,
      id,
    ]);
    return rows.map((row) => row.id);
  }

  /** Oldest first. */
  async budgets(accountId: string, tx: Queryable = this.#parts.store): Promise<Budget[]> {
    const sql = `SELECT ${BUDGET_COLUMNS} FROM identity_budget WHERE account_id = $1
      ORDER BY created_ms, id`;
    return (await tx.query(sql, [accountId])).map(budgetOf);
  }

  async findBudget(accountId: string, id: string): Promise<Budget | undefined> {
    return (await this.budgets(accountId)).find((budget) => budget.id === id);
  }

  /** Reads a budget and locks its row until the transaction ends; `undefined` if it is gone. */
  async lockBudget(
    { id, accountId }: Pick<Budget, 'id' | 'accountId'>,
    tx: Queryable,
  ): Promise<Budget | undefined> {
    const rows = await tx.query(
      `UPDATE identity_budget SET usd_nano = usd_nano WHERE account_id = $1 AND id = $2
       RETURNING ${BUDGET_COLUMNS}`,
      [accountId, id],
    );
    return rows.map(budgetOf)[0];
  }

  /** Call `forget` when the transaction has committed. */
  async createBudget(wanted: Omit<Budget, 'id' | 'createdMs'>, tx: Queryable): Promise<Budget> {
    const { ids, clock } = this.#parts;
    const budget = { ...wanted, id: `budget_${ids.hex(12)}`, createdMs: clock.nowMs() };
    const { id, accountId, tag, value, period, usdLimitNano, createdMs } = budget;
    await tx.query(
      `INSERT INTO identity_budget (${BUDGET_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
      [id, accountId, tag ?? null, value ?? null, period, usdLimitNano, createdMs],
    );
    return budget;
  }

  async updateBudget({ id, accountId, usdLimitNano }: Budget, tx: Queryable): Promise<void> {
    const sql = 'UPDATE identity_budget SET usd_nano = $3 WHERE account_id = $1 AND id = $2';
    await tx.query(sql, [accountId, id, usdLimitNano]);
  }

  async deleteBudget(
    { id, accountId }: Pick<Budget, 'id' | 'accountId'>,
    tx: Queryable,
  ): Promise<void> {
    const sql = 'DELETE FROM identity_budget WHERE account_id = $1 AND id = $2';
    await tx.query(sql, [accountId, id]);
  }

  #keyOf(row: Row): ApiKey {
    const key = keyOf(row);
    const usedMs = this.keys.lastUsedMs(key.id);
    return usedMs === undefined ? key : { ...key, lastUsedMs: usedMs };
  }

  /** Writes what an owner can change. In a transaction, call `forget` after the commit. */
  async updateKey(key: ApiKey, tx: Queryable = this.#parts.store): Promise<void> {
    await tx.query(
      `UPDATE identity_key SET ${OWNER_COLUMNS.map((name, at) => `${name} = $${at + 3}`).join(', ')}
       WHERE account_id = $1 AND id = $2 AND revoked_ms IS NULL`,
      [key.accountId, key.id, ...ownerValues(key)],
    );
    this.forget();
  }

  forget(): void {
    this.keys.forget();
  }

  /** Revokes a key and its descendants; returns `false` if there is no such active key. */
  async revokeKey(accountId: string, id: string): Promise<boolean> {
    const rows = await this.#parts.store.query<{ id: string }>(
      `UPDATE identity_key SET revoked_ms = $3 WHERE account_id = $1 AND revoked_ms IS NULL
       AND (id = $2 OR expires_ms IS NULL OR expires_ms > $3)
       AND id IN (${FROM_KEY} SELECT id FROM below)
       AND EXISTS (SELECT 1 FROM identity_key k WHERE k.account_id = $1 AND k.id = $2
         AND k.revoked_ms IS NULL AND k.kind <> 'MEMBER') RETURNING id`,
      [accountId, id, this.#parts.clock.nowMs()],
    );
    this.forget();
    return rows.length > 0;
  }

  async stop(): Promise<void> {
    this.#stopWriting();
    await this.keys.writeLastUse();
  }
}

/** The key `$2` of account `$1` and descendants; SQLite keeps the order of a CROSS JOIN. */
const FROM_KEY = `WITH RECURSIVE below AS (
  SELECT id FROM identity_key WHERE account_id = $1 AND id = $2
  UNION ALL SELECT k.id FROM below b
    CROSS JOIN identity_key k WHERE k.parent_id = b.id AND k.account_id = $1)`;

function listed({ revoked = false, parentId }: KeyFilter): string {
  const which = parentId === undefined ? `$2 = ''` : 'parent_id = $2';
  const active = revoked ? '' : ' AND revoked_ms IS NULL';
  return `account_id = $1 AND ${which} AND kind <> 'MEMBER'${active}`;
}
