/**
 * Every store test runs on both databases: `onEachStore` declares a suite twice, with a factory
 * for an empty, migrated store of each kind.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { type Dialect, type Migration, type Store, openStore } from '../../src/db/db.ts';
import { copiedPostgresDatabase, emptyPostgresDatabase } from './postgres.ts';

export interface StoreFixture {
  readonly dialect: Dialect;
  /** The address of a new, empty database. */
  freshUrl(): Promise<string>;
  /** A new store with these migrations; closed when the suite ends. */
  open(migrations: readonly Migration[], url?: string): Promise<Store>;
}

export function openTestStore(url: string): Promise<Store> {
  return openStore({ url, clock: systemClock(), ids: systemIds(), log: silentLog });
}

/** Declares `suite` for SQLite and for PostgreSQL. */
export function onEachStore(title: string, suite: (fixture: StoreFixture) => void): void {
  for (const dialect of ['sqlite', 'postgres'] as const) {
    describe(`${title} (${dialect})`, () => suite(storeFixture(dialect)));
  }
}

/** By the ids of their migrations: a copy is made in a third of the time of the migrations. */
const templates = new Map<string, Promise<string>>();

/** A PostgreSQL database with these migrations, to be copied. */
function migrated(migrations: readonly Migration[]): Promise<string> {
  const key = migrations.map(({ id }) => id).join(' ');
  let template = templates.get(key);
  if (template === undefined) {
    template = makeTemplate(migrations);
    templates.set(key, template);
  }
  return template;
}

async function makeTemplate(migrations: readonly Migration[]): Promise<string> {
  const url = await emptyPostgresDatabase();
  const store = await openTestStore(url);
  await store.migrate(migrations);
  await store.close();
  return url;
}

/** The fixture of one kind, inside a suite. */
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
    return `sqlite:${join(folder, 'farebox.db')}`;
  }
  return {
    dialect,
    freshUrl,
    open: async (migrations, url) => {
      const isCopied = url === undefined && dialect === 'postgres';
      const given = isCopied ? await copiedPostgresDatabase(await migrated(migrations)) : url;
      const store = await openTestStore(given ?? (await freshUrl()));
      opened.push(store);
      await store.migrate(migrations);
      return store;
    },
  };
}
