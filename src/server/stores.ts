/** Opens the database, identities and the ledger, for the server and for commands. */
import { join } from 'node:path';
import type { Config } from '../config/config.ts';
import { Identity, type PlanOf } from '../identity/identity.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type Nano, usdToNano } from '../core/money.ts';
import { Ledger } from '../billing/ledger/ledger.ts';
import { type Store, claimOnce, openProblem, openStore } from '../db/db.ts';
import { MIGRATIONS } from './migrations.ts';

export interface StoresParts {
  readonly config: Config;
  /** Unique among all processes, including ended ones. Default: a new UUID. */
  readonly processId?: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Default: those of `config`. */
  readonly planOf?: PlanOf;
}

export interface Stores {
  /** Id of this process in rows that processes share. */
  readonly processId: string;
  readonly store: Store;
  readonly identity: Identity;
  readonly ledger: Ledger;
  close(): Promise<void>;
}

/** Opens the database and runs migrations. Throws errors with a message for the operator. */
export async function openStores(parts: StoresParts): Promise<Stores> {
  const { config, clock, ids, log } = parts;
  const store = await openMigrated(parts);
  const processId = parts.processId ?? ids.uuid();
  const keyPrefix = config.service.name.toUpperCase();
  const planOf = parts.planOf ?? plansOf({ current: config });
  const identity = new Identity({ store, clock, ids, keyPrefix, planOf });
  return {
    processId,
    store,
    identity,
    ledger: new Ledger({
      store,
      processId,
      clock,
      ids,
      log,
      ...journalFor(config),
      epochDeadAfterMs: config.cluster.deadAfterSeconds * SECOND_MS,
    }),
    close: async () => {
      // Without the database only the times of last use are lost.
      await identity.stop().catch((error: unknown) => {
        log.warn({ reason: reasonOf(error) }, 'Times of last use could not be stored');
      });
      await store.close();
    },
  };
}

/** The plans in force. */
export function plansOf(config: { readonly current: Pick<Config, 'resolvedPlans'> }): PlanOf {
  return (name) => config.current.resolvedPlans.byName.get(name);
}

async function openMigrated({ config, clock, ids, log }: StoresParts): Promise<Store> {
  const { directDatabase, readReplicas } = config.cluster;
  let store: Store | undefined;
  try {
    store = await openStore({
      url: config.databaseUrl,
      ...(directDatabase === undefined ? {} : { directUrl: directDatabase }),
      replicaUrls: readReplicas,
      maxConnections: config.cluster.connections,
      replyTimeoutMs: config.cluster.replyTimeoutSeconds * SECOND_MS,
      clock,
      ids,
      log,
    });
    await store.migrate(MIGRATIONS);
    return store;
  } catch (error) {
    await store?.close();
    const problem = openProblem(error, config.databaseUrl);
    // Problems that an operator can fix have their own message.
    throw problem === undefined ? error : new Error(problem, { cause: error });
  }
}

/** Only a PostgreSQL database, which can be temporarily unreachable, needs a journal. */
function journalFor(config: Config): { journalFolder?: string } {
  if (config.databaseUrl.startsWith('sqlite:')) return {};
  return { journalFolder: join(config.dataFolder, 'journal') };
}

/** The owner account of the first start; its secrets are shown once. */
export interface FirstOwner {
  readonly accountId: string;
  readonly keyId: string;
  /** Secret of an ADMIN key. */
  readonly secret: string;
  readonly creditNano: Nano;
  /** Secret of a sign-in link, valid once and for minutes. Only if the server listens on loopback. */
  readonly linkSecret: string | undefined;
}

/** Creates the owner account with credit and a key on the first start, and on loopback a sign-in link. */
export async function welcomeOwner(
  stores: Stores,
  config: Config,
): Promise<FirstOwner | undefined> {
  const owner = await makeOwner(stores, config);
  if (owner === undefined) return undefined;
  const { accountId, keyId } = owner;
  const linkSecret = LOOPBACK.test(config.listen.host)
    ? await stores.identity.sessions.issueLink(accountId, keyId)
    : undefined;
  return { ...owner, linkSecret };
}

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|::1)$/;

async function makeOwner(
  stores: Stores,
  config: Config,
): Promise<Omit<FirstOwner, 'linkSecret'> | undefined> {
  if ((await stores.identity.oldestAccount()) !== undefined) return undefined;
  const creditNano = usdToNano(config.limits.starterCreditUsd);
  return stores.store.transaction(async (tx) => {
    // If several servers start at the same time, one creates the owner.
    if (!(await claimOnce(tx, 'first owner', 0))) return undefined;
    const account = await stores.identity.createAccount('owner', 'staff', tx);
    await stores.identity.makeOperator(account.id, tx);
    await stores.ledger.openAccount(account.id, tx);
    if (creditNano > 0n) {
      await stores.ledger.creditIn(tx, {
        accountId: account.id,
        amountNano: creditNano,
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: `starter-${account.id}`,
        note: 'Starter credit',
      });
    }
    const { key, secret } = await stores.identity.createKey(
      {
        accountId: account.id,
        // The person who starts the server is its operator.
        kind: 'ADMIN',
        description: 'first key',
        expiresMs: undefined,
        limitPeriod: 'EPOCH',
        usdLimitNano: undefined,
        diemLimitNano: undefined,
        modelPrivacy: 'ALL',
        models: undefined,
        limits: {},
      },
      tx,
    );
    return { accountId: account.id, keyId: key.id, secret, creditNano };
  });
}
