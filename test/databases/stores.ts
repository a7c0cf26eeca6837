/**
 * `onEachStore` declares a suite twice, for SQLite and for PostgreSQL, with a factory for empty,
 * migrated stores.
 */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import {
  type Dialect,
  type Migration,
  type Queryable,
  type Store,
  openStore,
} from '../../src/db/db.ts';
import { copiedPostgresDatabase, emptyPostgresDatabase } from './postgres.ts';

export interface StoreFixture {
  readonly dialect: Dialect;
  /** Returns the URL of a new, empty database. */
  freshUrl(): Promise<string>;
  /** Returns a new store with these migrations, which is closed at the end of the suite. */
  open(migrations: readonly Migration[], url?: string): Promise<Store>;
}

export function openTestStore(url: string): Promise<Store> {
  return openStore({ url, clock: systemClock(), ids: systemIds(), log: silentLog });
}

/** A store whose `now_ms` is that of the caller, as in SQLite, for a test whose time is not the real one. */
export function inTimeOfCaller(store: Store): Store {
  const timed = (db: Queryable): Queryable => ({
    query: (sql, parameters) => db.query(inTime(sql), parameters),
    run: (statements) => db.run(statements.map((one) => ({ ...one, sql: inTime(one.sql) }))),
  });
  return {
    ...timed(store),
    dialect: store.dialect,
    transaction: (body, options) => store.transaction((tx) => body(timed(tx)), options),
    migrate: (migrations) => store.migrate(migrations),
    readerFor: (caller) => timed(store.readerFor(caller)),
    unavailable: () => store.unavailable(),
    close: () => store.close(),
  };
}

function inTime(sql: string): string {
  return sql.replaceAll(/now_ms\((\$\d+)\)/g, 'CAST($1 AS BIGINT)');
}

/** Declares `suite` for SQLite and for PostgreSQL. */
export function onEachStore(title: string, suite: (fixture: StoreFixture) => void): void {
  for (const dialect of ['sqlite', 'postgres'] as const) {
    describe(`${title} (${dialect})`, () => suite(storeFixture(dialect)));
  }
}

/** Keys: dialect and migrations. Copying takes at most a third of the time of migrating. */
const templates = new Map<string, Promise<string>>();

/** URL of a database with these migrations, which is copied. */
function migrated(dialect: Dialect, migrations: readonly Migration[]): Promise<string> {
  const key = [dialect, ...migrations.map(({ id }) => id)].join(' ');
  let template = templates.get(key);
  if (template === undefined) {
    template = makeTemplate(dialect, migrations);
    templates.set(key, template);
  }
  return template;
}

async function makeTemplate(dialect: Dialect, migrations: readonly Migration[]): Promise<string> {
  const url = dialect === 'postgres' ? await emptyPostgresDatabase() : templateFile();
  const store = await openTestStore(url);
  await store.migrate(migrations);
  await store.close();
  return url;
}

function templateFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-template-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  return `${SQLITE}${join(folder, 'farebox.db')}`;
}

const SQLITE = 'sqlite:';

/** Creates the SQLite database at this URL with these migrations. */
export async function makeSqliteDatabase(
  url: string,
  migrations: readonly Migration[],
): Promise<void> {
  const template = await migrated('sqlite', migrations);
  const file = url.slice(SQLITE.length);
  mkdirSync(dirname(file), { recursive: true });
  copyFileSync(template.slice(SQLITE.length), file);
}

/** The fixture of one dialect, inside a suite. */
export function storeFixture(dialect: Dialect): StoreFixture {
  const opened: Store[] = [];
  const folders: string[] = [];
  after(async () => {
    for (const store of opened) await store.close();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });
  async function freshUrl(): Promise<string> {
    if (dialect === 'postgres') return emptyPostgresDatabase();
    const folder = mkdtempSync(join(tmpdir(), 'farebox-sqlite-'));
    folders.push(folder);
    return `${SQLITE}${join(folder, 'farebox.db')}`;
  }
  async function copyOf(migrations: readonly Migration[]): Promise<string> {
    if (dialect === 'postgres') return copiedPostgresDatabase(await migrated(dialect, migrations));
    const url = await freshUrl();
    await makeSqliteDatabase(url, migrations);
    return url;
  }
  return {
    dialect,
    freshUrl,
    open: async (migrations, url) => {
      const store = await openTestStore(url ?? (await copyOf(migrations)));
      opened.push(store);
      await store.migrate(migrations);
      return store;
    },
  };
}
