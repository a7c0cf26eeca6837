/**
 * Members of accounts: people that a sign-in provider identifies, each with a role, and invitations by
 * link. A member acts through a key of its own, whose secret is stored nowhere, so that charges,
 * limits and the end of sessions follow the rules of keys.
 */
import type { MemberRole, SignInProviderSettings, SignInRule } from '../config/config.ts';
import { type Clock, DAY_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Ids, sha256Hex } from '../core/ids.ts';
import { type Queryable, type Row, type Store, oneAtATime } from '../db/db.ts';
import type { Account } from './accounts.ts';
import type { Plan } from './caller.ts';
import type { Person } from './sign-in-providers.ts';

const MAX_MEMBERS = 500;
const MAX_INVITATIONS = 100;
const SECRET_BYTES = 32;
/** Longer than any secret: bounds the input of the hash. */
const MAX_SECRET_CHARS = 100;
const OWN_ACCOUNT_DIGITS = 24;
/** Enough to make the name of a second account with the same address unique. */
const SHORT_ID_CHARS = 8;

const MEMBER_COLUMNS = `id, account_id, key_id, issuer, subject, email, name, role, source,
  is_role_set, created_ms, last_sign_in_ms`;
const INVITATION_COLUMNS = 'id, account_id, role, email, created_by, created_ms, expires_ms';

export interface Member {
  readonly id: string;
  readonly accountId: string;
  /** The key that it acts through. */
  readonly keyId: string;
  readonly issuer: string;
  readonly subject: string;
  readonly email: string;
  readonly name: string;
  readonly role: MemberRole;
  /** Each sign-in applies the rule again; a membership by an invitation lasts. */
  readonly source: 'rule' | 'invitation';
  /** An owner has set the role, so rules no longer change it. */
  readonly isRoleSet: boolean;
  readonly createdMs: number;
  readonly lastSignInMs: number;
}

export interface Invitation {
  readonly id: string;
  readonly accountId: string;
  readonly role: MemberRole;
  /** Only a person with this address can accept it; empty for any person. */
  readonly email: string;
  /** Id of the key of its creator. */
  readonly createdBy: string;
  readonly createdMs: number;
  readonly expiresMs: number;
}

/** An account that a person can enter. */
export interface Membership {
  readonly accountId: string;
  readonly accountName: string;
  readonly role: MemberRole;
}

/** The accounts and keys of members, as `Identity` provides them. */
export interface MemberAccounts {
  createAccount(name: string, plan: Plan, tx: Queryable, id?: string): Promise<Account>;
  findAccount(id: string, tx: Queryable): Promise<Account | undefined>;
  namedAccount(name: string, tx: Queryable): Promise<Account | undefined>;
  operatorAccount(tx: Queryable): Promise<Account | undefined>;
  lockAccount(accountId: string, tx: Queryable): Promise<void>;
  createMemberKey(accountId: string, description: string, tx: Queryable): Promise<string>;
  forget(): void;
}

export interface MembersParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly identity: MemberAccounts;
}

export interface SignInWish {
  readonly person: Person;
  readonly provider: SignInProviderSettings;
  /** Secret of an invitation. */
  readonly invitation: string | undefined;
  /** Opens the balance of a new account. */
  readonly openAccount: (accountId: string, tx: Queryable) => Promise<void>;
}

export class Members {
  readonly #parts: MembersParts;

  constructor(parts: MembersParts) {
    this.#parts = parts;
  }

  /**
   * Applies the rules of the provider and an invitation, and returns the member that signs in. Throws
   * `SIGN_IN_NOT_ALLOWED` if the person is a member of no account, `INVITATION_NOT_FOUND`.
   */
  async signIn(wish: SignInWish): Promise<Member> {
    const { store, identity } = this.#parts;
    const member = await store.transaction(async (tx) => {
      const { person, provider } = wish;
      // Two first sign-ins of one person at the same time make one account.
      await oneAtATime(tx, store.dialect, `identity_member ${person.issuer} ${person.subject}`);
      const rule = ruleFor(provider.rules, person);
      const granted = rule && (await this.#grantedAccount(rule, wish, tx));
      await this.#dropRuleMembers(person, granted?.id, tx);
      const byRule = granted && (await this.#join(granted, person, roleOf(rule), 'rule', tx));
      const wanted = (await this.#acceptInvitation(wish, tx)) ?? byRule;
      const account = wanted && (await identity.findAccount(wanted.accountId, tx));
      // The sign-in to a disabled account fails, and would keep the person out of its other accounts.
      if (account?.disabled === false) return wanted;
      return (await this.#lastUsed(person, tx)) ?? wanted;
    });
    identity.forget();
    if (member === undefined) throw new Fault('SIGN_IN_NOT_ALLOWED');
    return member;
  }

  async #grantedAccount(
    rule: SignInRule,
    { person, openAccount }: SignInWish,
    tx: Queryable,
  ): Promise<Account> {
    const { identity } = this.#parts;
    const create = async (name: string, id?: string): Promise<Account> => {
      const account = await identity.createAccount(name, rule.plan, tx, id);
      await openAccount(account.id, tx);
      return account;
    };
    if (rule.operator) {
      const account = await identity.operatorAccount(tx);
      if (account !== undefined) return account;
      throw new Fault('SIGN_IN_NOT_ALLOWED', { message: 'The server has no operator account' });
    }
    if (rule.account === undefined) {
      const digits = sha256Hex(`${person.issuer} ${person.subject}`).slice(0, OWN_ACCOUNT_DIGITS);
      const id = `acct_${digits}`;
      const own = await identity.findAccount(id, tx);
      if (own !== undefined) return own;
      const isTaken = (await identity.namedAccount(person.email, tx)) !== undefined;
      const suffix = ` (${digits.slice(0, SHORT_ID_CHARS)})`;
      return await create(person.email + (isTaken ? suffix : ''), id);
    }
    const named =
      (await identity.namedAccount(rule.account, tx)) ??
      (await identity.findAccount(rule.account, tx));
    if (named?.isOperator === true) {
      throw new Fault('SIGN_IN_NOT_ALLOWED', {
        message: `The account "${rule.account}" of the rule is the operator's; the rule must have "operator: true"`,
      });
    }
    return named ?? (await create(rule.account));
  }

  /** Removes memberships that rules have given and give no more. */
  async #dropRuleMembers(
    person: Person,
    keptAccountId: string | undefined,
    tx: Queryable,
  ): Promise<void> {
    for (const member of await this.#of(person, tx)) {
      if (member.source === 'rule' && member.accountId !== keptAccountId) {
        await this.#delete(member, tx);
      }
    }
  }

  /** Adds a person to an account, or updates its membership. */
  async #join(
    { id: accountId }: Pick<Account, 'id'>,
    person: Person,
    role: MemberRole,
    source: Member['source'],
    tx: Queryable,
  ): Promise<Member> {
    const { identity, ids, clock } = this.#parts;
    await identity.lockAccount(accountId, tx);
    const nowMs = clock.nowMs();
    const before = (await this.#of(person, tx)).find((one) => one.accountId === accountId);
    if (before !== undefined) {
      const isRuled = source === 'rule' && before.source === 'rule' && !before.isRoleSet;
      const after: Member = {
        ...before,
        email: person.email,
        name: person.name,
        role: isRuled ? role : before.role,
        source: source === 'invitation' ? source : before.source,
        lastSignInMs: nowMs,
      };
      await this.#update(after, tx);
      return after;
    }
    await this.#requireSpace('identity_member', accountId, MAX_MEMBERS, tx);
    const member: Member = {
      id: `member_${ids.hex(12)}`,
      accountId,
      keyId: await identity.createMemberKey(accountId, person.email, tx),
      issuer: person.issuer,
      subject: person.subject,
      email: person.email,
      name: person.name,
      role,
      source,
      isRoleSet: false,
      createdMs: nowMs,
      lastSignInMs: nowMs,
    };
    await tx.query(
      `INSERT INTO identity_member (${MEMBER_COLUMNS})
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
      Object.values({ ...member, isRoleSet: 0 }),
    );
    return member;
  }

  async #acceptInvitation(
    { person, invitation: secret }: SignInWish,
    tx: Queryable,
  ): Promise<Member | undefined> {
    if (secret === undefined) return undefined;
    const invitation = await this.invitation(secret, tx);
    if (invitation.email !== '' && invitation.email !== person.email) {
      throw new Fault('SIGN_IN_NOT_ALLOWED', {
        message: `The invitation is for another email address than ${person.email}`,
      });
    }
    // Only one of several requests at the same time deletes the row.
    const taken = await tx.query('DELETE FROM identity_invitation WHERE id = $1 RETURNING id', [
      invitation.id,
    ]);
    if (taken.length === 0) throw new Fault('INVITATION_NOT_FOUND');
    return this.#join({ id: invitation.accountId }, person, invitation.role, 'invitation', tx);
  }

  /** The last used one first, those of disabled accounts after all others. */
  async #of({ issuer, subject }: Pick<Person, 'issuer' | 'subject'>, tx: Queryable) {
    const sql = `SELECT ${MEMBER_COLUMNS} FROM identity_member WHERE issuer = $1 AND subject = $2
      ORDER BY (SELECT disabled FROM identity_account a WHERE a.id = account_id),
        last_sign_in_ms DESC, id`;
    return (await tx.query(sql, [issuer, subject])).map(memberOf);
  }

  /** The membership of the latest sign-in, so that a person returns to the account it left. */
  async #lastUsed(person: Person, tx: Queryable): Promise<Member | undefined> {
    for (const { id, accountId } of await this.#of(person, tx)) {
      await this.#parts.identity.lockAccount(accountId, tx);
      const member = (await this.#of(person, tx)).find((one) => one.id === id);
      // Without a member, an owner has removed it before the lock.
      if (member === undefined) continue;
      return this.#join({ id: accountId }, person, member.role, member.source, tx);
    }
    return undefined;
  }

  /** The accounts of the person behind a member, by name. */
  async memberships({ id }: Pick<Member, 'id'>): Promise<(Membership & Pick<Member, 'keyId'>)[]> {
    const rows = await this.#parts.store.query(
      `SELECT o.account_id AS account_id, o.key_id AS key_id, o.role AS role, a.name AS name
       FROM identity_member m
       JOIN identity_member o ON o.issuer = m.issuer AND o.subject = m.subject
       JOIN identity_account a ON a.id = o.account_id
       WHERE m.id = $1 AND a.disabled = 0 ORDER BY a.name, a.id LIMIT ${MAX_MEMBERS}`,
      [id],
    );
    return rows.map((row) => ({
      accountId: String(row['account_id']),
      accountName: String(row['name']),
      keyId: String(row['key_id']),
      role: String(row['role']) as MemberRole, // written by this folder only
    }));
  }

  /** The member that acts through a key. */
  async ofKey(keyId: string): Promise<Member | undefined> {
    const sql = `SELECT ${MEMBER_COLUMNS} FROM identity_member WHERE key_id = $1`;
    return (await this.#parts.store.query(sql, [keyId])).map(memberOf)[0];
  }

  /** Oldest first. */
  async list(accountId: string): Promise<Member[]> {
    const sql = `SELECT ${MEMBER_COLUMNS} FROM identity_member WHERE account_id = $1
      ORDER BY created_ms, id`;
    return (await this.#parts.store.query(sql, [accountId])).map(memberOf);
  }

  /** Sets a role, which rules change no more. Throws `MEMBER_NOT_FOUND`, `LAST_OWNER`. */
  async setRole(accountId: string, id: string, role: MemberRole): Promise<Member> {
    return this.#change(accountId, id, role === 'owner', async (member, tx) => {
      const after = { ...member, role, isRoleSet: true };
      await this.#update(after, tx);
      return after;
    });
  }

  /** Removes a member and ends its sessions. Throws `MEMBER_NOT_FOUND`, `LAST_OWNER`. */
  async remove(accountId: string, id: string): Promise<Member> {
    const removed = await this.#change(accountId, id, false, async (member, tx) => {
      await this.#delete(member, tx);
      return member;
    });
    this.#parts.identity.forget();
    return removed;
  }

  #change(
    accountId: string,
    id: string,
    staysOwner: boolean,
    change: (member: Member, tx: Queryable) => Promise<Member>,
  ): Promise<Member> {
    const { store, identity } = this.#parts;
    return store.transaction(async (tx) => {
      await identity.lockAccount(accountId, tx);
      const sql = `SELECT ${MEMBER_COLUMNS} FROM identity_member WHERE account_id = $1`;
      const members = (await tx.query(sql, [accountId])).map(memberOf);
      const member = members.find((one) => one.id === id);
      if (member === undefined) throw new Fault('MEMBER_NOT_FOUND');
      const owners = members.filter(({ role }) => role === 'owner');
      if (member.role === 'owner' && owners.length === 1 && !staysOwner) {
        throw new Fault('LAST_OWNER');
      }
      return await change(member, tx);
    });
  }

  async #update(member: Member, tx: Queryable): Promise<void> {
    const { id, email, name, role, source, isRoleSet, lastSignInMs } = member;
    await tx.query(
      `UPDATE identity_member SET email = $2, name = $3, role = $4, source = $5, is_role_set = $6,
       last_sign_in_ms = $7 WHERE id = $1`,
      [id, email, name, role, source, isRoleSet ? 1 : 0, lastSignInMs],
    );
  }

  async #delete({ id, keyId }: Member, tx: Queryable): Promise<void> {
    await tx.query('DELETE FROM identity_session WHERE key_id = $1', [keyId]);
    await tx.query('UPDATE identity_key SET revoked_ms = $2 WHERE id = $1', [
      keyId,
      this.#parts.clock.nowMs(),
    ]);
    await tx.query('DELETE FROM identity_member WHERE id = $1', [id]);
  }

  async #requireSpace(
    table: 'identity_member' | 'identity_invitation',
    accountId: string,
    max: number,
    tx: Queryable,
  ): Promise<void> {
    const [row] = await tx.query<{ total: bigint }>(
      `SELECT count(*) AS total FROM ${table} WHERE account_id = $1`,
      [accountId],
    );
    if (Number(row?.total ?? 0n) >= max) throw new Fault('MEMBER_LIMIT_REACHED');
  }

  /** Creates an invitation; its secret is returned here and stored nowhere. */
  async invite(
    wanted: Pick<Invitation, 'accountId' | 'role' | 'email' | 'createdBy'>,
    days: number,
  ): Promise<{ readonly invitation: Invitation; readonly secret: string }> {
    const { store, identity, ids, clock } = this.#parts;
    const secret = ids.bytes(SECRET_BYTES).toString('base64url');
    const { accountId, role, email, createdBy } = wanted;
    const createdMs = clock.nowMs();
    const invitation: Invitation = {
      id: `invitation_${ids.hex(12)}`,
      accountId,
      role,
      email,
      createdBy,
      createdMs,
      expiresMs: createdMs + days * DAY_MS,
    };
    await store.transaction(async (tx) => {
      await identity.lockAccount(accountId, tx);
      await tx.query('DELETE FROM identity_invitation WHERE expires_ms <= now_ms($1)', [createdMs]);
      await this.#requireSpace('identity_invitation', accountId, MAX_INVITATIONS, tx);
      await tx.query(
        `INSERT INTO identity_invitation (${INVITATION_COLUMNS}, secret_sha256)
         VALUES ($1, $2, $3, $4, $5, $6, now_ms($6) - $6 + $7, $8)`,
        [...Object.values(invitation), sha256Hex(secret)],
      );
    });
    return { invitation, secret };
  }

  /** The open invitation of a secret. Throws `INVITATION_NOT_FOUND`. */
  async invitation(secret: string, tx: Queryable = this.#parts.store): Promise<Invitation> {
    const sql = `SELECT ${INVITATION_COLUMNS} FROM identity_invitation
      WHERE secret_sha256 = $1 AND expires_ms > now_ms($2)`;
    const isShaped = secret.length <= MAX_SECRET_CHARS;
    const [row] = isShaped
      ? await tx.query(sql, [sha256Hex(secret), this.#parts.clock.nowMs()])
      : [];
    if (row === undefined) throw new Fault('INVITATION_NOT_FOUND');
    return invitationOf(row);
  }

  /** Open invitations, oldest first. */
  async invitations(accountId: string): Promise<Invitation[]> {
    const sql = `SELECT ${INVITATION_COLUMNS} FROM identity_invitation
      WHERE account_id = $1 AND expires_ms > now_ms($2) ORDER BY created_ms, id`;
    const { store, clock } = this.#parts;
    return (await store.query(sql, [accountId, clock.nowMs()])).map(invitationOf);
  }

  /** Throws `INVITATION_NOT_FOUND`. */
  async withdraw(accountId: string, id: string): Promise<void> {
    const sql = 'DELETE FROM identity_invitation WHERE account_id = $1 AND id = $2 RETURNING id';
    const rows = await this.#parts.store.query(sql, [accountId, id]);
    if (rows.length === 0) throw new Fault('INVITATION_NOT_FOUND');
  }
}

/** The first rule whose groups and domains fit. */
export function ruleFor(
  rules: readonly SignInRule[],
  { groups, email }: Pick<Person, 'groups' | 'email'>,
): SignInRule | undefined {
  const domain = email.slice(email.lastIndexOf('@') + 1);
  return rules.find(
    (rule) =>
      (rule.groups?.some((group) => groups.includes(group)) ?? true) &&
      (rule.domains?.includes(domain) ?? true),
  );
}

function roleOf(rule: SignInRule | undefined): MemberRole {
  const isOwn = rule?.operator === false && rule.account === undefined;
  return rule?.role ?? (isOwn ? 'owner' : 'viewer');
}

function memberOf(row: Row): Member {
  const text = (name: string): string => String(row[name]);
  return {
    id: text('id'),
    accountId: text('account_id'),
    keyId: text('key_id'),
    issuer: text('issuer'),
    subject: text('subject'),
    email: text('email'),
    name: text('name'),
    role: text('role') as MemberRole, // written by this folder only
    source: text('source') as Member['source'], // the same
    isRoleSet: row['is_role_set'] === 1n,
    createdMs: Number(row['created_ms']),
    lastSignInMs: Number(row['last_sign_in_ms']),
  };
}

function invitationOf(row: Row): Invitation {
  return {
    id: String(row['id']),
    accountId: String(row['account_id']),
    role: String(row['role']) as MemberRole, // written by this folder only
    email: String(row['email']),
    createdBy: String(row['created_by']),
    createdMs: Number(row['created_ms']),
    expiresMs: Number(row['expires_ms']),
  };
}
