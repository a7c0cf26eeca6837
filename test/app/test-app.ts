/**
 * A whole farebox in this process for tests: real server, real database, real engines where they
 * run; configuration as YAML text. Stopped and removed when the suite ends.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findingsOf } from '../../src/cli/check.ts';
import { type App, BASE_PATH, startApp } from '../../src/server/server.ts';
import { MIGRATIONS } from '../../src/server/migrations.ts';
import { type FirstOwner, welcomeOwner } from '../../src/server/stores.ts';
import { type Config, CONFIG_FILE, formatProblem, loadConfig } from '../../src/config/config.ts';
import type { NewKey } from '../../src/identity/identity.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { type Log, silentLog } from '../../src/core/log.ts';
import { usdToNano } from '../../src/core/money.ts';
import { makeSqliteDatabase } from '../databases/stores.ts';
import type { ResponseCheck } from './check-responses.ts';
import { ANSWERS_FILE } from './write-responses.ts';

export interface TestAppOptions {
  /** Sections of `farebox.yaml`; listen address, discovery and embedded engines are set here. */
  readonly yaml?: string;
  /** Default: a SQLite file in the data folder. */
  readonly databaseUrl?: string;
  /** Default: a folder that is removed with the app. */
  readonly dataFolder?: string;
  /** Default: a free one. */
  readonly port?: number;
  readonly clock?: Clock;
  readonly log?: Log;
  /** Returns the content of `farebox.yaml` for a reload. Default: unchanged. */
  readonly changedYaml?: () => string | undefined;
  /** Further environment variables. */
  readonly env?: Readonly<Record<string, string>>;
  /** Start the embedded demo engine. Default false: it takes a child process. */
  readonly embedded?: boolean;
  /** Start the sentence encoder beside the demo engine. Default false. */
  readonly sentences?: boolean;
  /** Start the embedded media engines, without any other. Default false. */
  readonly media?: boolean;
  /** Let engines fetch what they lack. Default false. */
  readonly download?: boolean;
}

export interface TestApp {
  readonly app: App;
  readonly config: Config;
  /** `http://127.0.0.1:<port>/api/v1`. */
  readonly url: string;
  /** The operator's account, with a key for inference and nothing else. */
  readonly owner: Pick<FirstOwner, 'accountId' | 'secret' | 'creditNano'>;
  readonly answers: ResponseCheck;
  /** A key of the owner account, or of another. */
  key(settings?: Partial<NewKey>): Promise<string>;
  /** A further account with credit and one key. */
  account(usd: string, settings?: Partial<NewKey>): Promise<{ accountId: string; secret: string }>;
  /** Fails unless the audit is clean. */
  audit(): Promise<void>;
  /** Fails if a response did not match the OpenAPI document. */
  stop(): Promise<void>;
}

const READ: ResponseCheck = { checked: 0, assertFitting: () => undefined };

export async function startTestApp(options: TestAppOptions = {}): Promise<TestApp> {
  const folder = options.dataFolder ?? mkdtempSync(join(tmpdir(), 'farebox-app-'));
  const yaml = [
    options.databaseUrl === undefined ? '' : `database: ${JSON.stringify(options.databaseUrl)}`,
    embeddedYaml(options),
    'discovery: { enabled: false }',
    options.yaml ?? '',
  ].join('\n');
  const env = { ...options.env, FAREBOX_DATA: folder, PORT: String(options.port ?? 0) };
  const load = (changed?: string) =>
    loadConfig({
      env,
      cwd: folder,
      readFile: async (path) =>
        path === join(folder, CONFIG_FILE) ? (changed ?? yaml) : await readFile(path, 'utf8'),
    });
  const loaded = await load();
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join('\n'));
  const { config } = loaded;
  // Other tests cover the first start; here it would take a third of the time.
  const file = join(folder, 'farebox.db');
  const isOwn = config.databaseUrl === `sqlite:${file}`;
  if (isOwn && !existsSync(file)) await makeSqliteDatabase(config.databaseUrl, MIGRATIONS);
  const app = await startApp({
    config,
    clock: options.clock ?? systemClock(),
    ids: systemIds(),
    log: options.log ?? silentLog,
    version: '20260102.030405',
    operations: {
      load: () => load(options.changedYaml?.()),
      check: findingsOf,
      inputs: { env, cwd: folder, version: '1.0.0' },
    },
  });
  const { service, payments } = config;
  const takesWallets = payments.base !== undefined || payments.solana !== undefined;
  // If responses are written to a file, the reader of the file validates them. Loading the
  // validator and the document takes longer than the work of a short process.
  const isRead = process.env[ANSWERS_FILE] !== undefined;
  const answers = isRead
    ? READ
    : (await import('./check-responses.ts')).checkResponses(app, BASE_PATH, {
        service,
        takesWallets,
      });
  const made = await welcomeOwner(app.stores, config);
  const owner = { creditNano: usdToNano('0'), ...made, ...(await ownerOf(app)) };
  return {
    app,
    config,
    url: `${app.address}${BASE_PATH}`,
    owner,
    answers,
    key: (settings = {}) => newKey(app, { accountId: owner.accountId, ...settings }),
    account: async (usd, settings = {}) => {
      const account = await app.stores.identity.createAccount('test', 'paid');
      await credit(app, account.id, usd);
      return {
        accountId: account.id,
        secret: await newKey(app, { ...settings, accountId: account.id }),
      };
    },
    audit: async () => {
      const report = await app.stores.ledger.audit();
      if (!report.ok) throw new Error(`Audit: ${JSON.stringify(report.differences, bigints)}`);
    },
    stop: async () => {
      await app.close();
      if (options.dataFolder === undefined) rmSync(folder, { recursive: true, force: true });
      answers.assertFitting();
    },
  };
}

/** Waits until the embedded engine has loaded a model. */
export async function modelIsThere(farebox: TestApp, id: string): Promise<void> {
  const until = performance.now() + 120_000;
  while (farebox.app.catalog.get(id) === undefined) {
    if (performance.now() > until) throw new Error(`The model ${id} did not load`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function embeddedYaml(options: TestAppOptions): string {
  const { embedded = false, media = false, sentences = false, download = false } = options;
  if (!embedded && !media) return 'embedded: { enabled: false }';
  return `embedded: { download: ${download}, threads: 1, demo: ${embedded}, sentences: ${sentences}, media: ${media} }`;
}

async function ownerOf(app: App): Promise<Pick<FirstOwner, 'accountId' | 'secret'>> {
  const account = await app.stores.identity.oldestAccount();
  if (account === undefined) throw new Error('There is no account');
  return { accountId: account.id, secret: await newKey(app, { accountId: account.id }) };
}

async function newKey(
  app: App,
  settings: Partial<NewKey> & { readonly accountId: string },
): Promise<string> {
  const wanted: NewKey = {
    kind: 'INFERENCE',
    description: 'test',
    expiresMs: undefined,
    limitPeriod: 'EPOCH',
    usdLimitNano: undefined,
    diemLimitNano: undefined,
    modelPrivacy: 'ALL',
    models: undefined,
    limits: {},
    ...settings,
  };
  const { key, secret } = await app.stores.identity.createKey(wanted);
  if (key.usdLimitNano !== undefined || key.diemLimitNano !== undefined) {
    await app.stores.store.transaction((tx) =>
      app.stores.ledger.setCap(tx, {
        id: key.id,
        accountId: key.accountId,
        period: key.limitPeriod,
        usdLimitNano: key.usdLimitNano,
        diemLimitNano: key.diemLimitNano,
      }),
    );
  }
  return secret;
}

async function credit(app: App, accountId: string, usd: string): Promise<void> {
  await app.stores.store.transaction((tx) =>
    app.stores.ledger.creditIn(tx, {
      accountId,
      amountNano: usdToNano(usd),
      from: 'house:operator-credit',
      kind: 'CREDIT',
      id: `test-${accountId}-${usd}`,
    }),
  );
}

function bigints(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}
