/** `farebox backup` and `farebox restore`, beside a running server and into an empty place. */
import assert from 'node:assert/strict';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { DAY_MS, HOUR_MS, MINUTE_MS, systemClock } from '../../src/core/clock.ts';
import { runCommand } from '../../src/cli/cli.ts';
import { openDestination } from '../../src/server/backup/destination.ts';
import { type TestApp, type TestAppOptions, startTestApp } from '../app/test-app.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { startMailServer } from '../support/mail-server.ts';
import { rawServer } from '../support/raw-server.ts';
import { S3Storage } from '../support/s3-storage.ts';
import { TestUpstream } from '../support/test-upstream.ts';

interface Report {
  readonly location: string;
  readonly isEncrypted: boolean;
  readonly deleted: readonly string[];
  readonly variables: readonly string[];
  readonly audit: { readonly ok: boolean; readonly transfers: number; readonly owedUsd: string };
}

describe('backup and restore', () => {
  const root = mkdtempSync(join(tmpdir(), 'farebox-backup-'));
  const upstreams: TestUpstream[] = [];
  let engineUrl = '';
  before(async () => {
    const upstream = await TestUpstream.start();
    upstream.otherwise = { kind: 'json', usage: true };
    upstreams.push(upstream);
    engineUrl = upstream.url;
  });
  after(async () => {
    for (const upstream of upstreams) await upstream.kill();
    rmSync(root, { recursive: true, force: true });
  });

  const yamlOf = (more = ''): string => `# Prices of this shop
engines: { fake: { url: '${engineUrl}', apiKey: '\${ENGINE_KEY:-none}' } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
${more}`;

  async function farebox(folder: string, argv: readonly string[], env = {}) {
    let [out, error] = ['', ''];
    const code = await runCommand({
      argv: [...argv],
      env: { FAREBOX_DATA: join(folder, 'data'), ...env },
      cwd: folder,
      stdout: { write: (text: string) => (out += text) },
      stderr: { write: (text: string) => (error += text) },
      onSignal: () => undefined,
    });
    return { code, out, error };
  }

  function emptyFolder(): string {
    return mkdtempSync(join(root, 'place-'));
  }

  /** A running server with a configuration file, one account and five paid chats. */
  async function shop(more = '', databaseUrl?: string) {
    const folder = emptyFolder();
    const yaml = yamlOf(databaseUrl === undefined ? more : `${more}\ndatabase: '${databaseUrl}'`);
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const app = await startTestApp({
      yaml: yamlOf(more),
      dataFolder: join(folder, 'data'),
      ...(databaseUrl === undefined ? {} : { databaseUrl }),
    });
    const { secret } = await app.account('3');
    for (let at = 0; at < 5; at += 1) assert.equal(await chat(app, secret), 200);
    return { folder, app, secret };
  }

  async function chat(app: TestApp, secret: string): Promise<number> {
    const response = await fetch(`${app.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: '{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    });
    await response.text();
    return response.status;
  }

  async function backup(folder: string, ...more: readonly string[]): Promise<Report> {
    const made = await farebox(folder, ['backup', '--json', ...more]);
    assert.equal(made.code, 0, made.error);
    return JSON.parse(made.out) as Report;
  }

  async function servesAgain(folder: string, secret: string, databaseUrl?: string): Promise<void> {
    const app = await startTestApp({
      yaml: yamlOf(),
      dataFolder: join(folder, 'data'),
      ...(databaseUrl === undefined ? {} : { databaseUrl }),
    });
    assert.equal(await chat(app, secret), 200);
    await app.audit();
    await app.stop();
  }

  test('a backup of a running server restores into an empty folder with the same audit, and its keys work', async () => {
    const { folder, app, secret } = await shop();
    const report = await backup(folder, '--to', './kept');
    assert.equal(report.audit.ok, true);
    assert.deepEqual(report.variables, ['ENGINE_KEY']);
    assert.equal(report.isEncrypted, false);
    assert.equal(await chat(app, secret), 200, 'the server goes on');
    await app.stop();

    const place = emptyFolder();
    const restored = await farebox(place, ['restore', report.location, '--json']);
    assert.equal(restored.code, 0, restored.error);
    const body = JSON.parse(restored.out) as { transfers: number; owedUsd: string };
    assert.equal(body.transfers, report.audit.transfers);
    assert.equal(body.owedUsd, report.audit.owedUsd);
    assert.match(readFileSync(join(place, 'farebox.yaml'), 'utf8'), /^# Prices of this shop/);
    assert.deepEqual(readdirSync(place).sort(), ['data', 'farebox.yaml']);
    await servesAgain(place, secret);

    // `--repair` credits only payments that have a row, which later payments do not have.
    const told = await farebox(emptyFolder(), ['restore', report.location]);
    assert.match(
      told.out,
      /"farebox audit --chain" and "farebox audit --stripe" list the payments/,
    );
    assert.doesNotMatch(told.out, /--repair/);
    const again = await farebox(place, ['restore', report.location]);
    assert.equal(again.code, 1);
    assert.match(again.error, /The database file .* exists: restore into an empty data folder/);
  });

  test('a restore beside the log of another database is refused', async () => {
    const { folder, app, secret } = await shop();
    const { location } = await backup(folder, '--to', './kept');
    assert.equal(await chat(app, secret), 200);
    const place = emptyFolder();
    mkdirSync(join(place, 'data'));
    const log = join('data', 'farebox.db-wal');
    copyFileSync(join(folder, log), join(place, log));
    await app.stop();
    const refused = await farebox(place, ['restore', location]);
    assert.equal(refused.code, 1);
    assert.match(refused.error, /farebox\.db-wal exists: restore into an empty data folder/);
    rmSync(join(place, log));
    assert.equal((await farebox(place, ['restore', location])).code, 0);
    await servesAgain(place, secret);
  });

  test('an encrypted backup needs its private key', async () => {
    const keys = emptyFolder();
    const made = await farebox(keys, ['backup', '--new-key', 'key.txt', '--json']);
    const { recipient } = JSON.parse(made.out) as { recipient: string };
    const other = await farebox(keys, ['backup', '--new-key', 'other.txt']);
    assert.equal(other.code, 0);
    const { folder, app, secret } = await shop(`backup: { recipient: '${recipient}', to: ./kept }`);
    const { location, isEncrypted } = await backup(folder);
    assert.equal(isEncrypted, true);
    assert.match(location, /\.tar\.gz\.age$/);
    assert.ok(!readFileSync(location).includes('Prices of this shop'));
    await app.stop();

    const place = emptyFolder();
    const refused = await farebox(place, ['restore', location]);
    assert.match(refused.error, /The backup is encrypted: give the file of its private key/);
    const wrong = await farebox(place, [
      'restore',
      location,
      '--identity',
      join(keys, 'other.txt'),
    ]);
    assert.match(wrong.error, /The backup is encrypted for another private key/);
    assert.deepEqual(readdirSync(place), [], 'a refused restore leaves nothing');
    const key = join(keys, 'key.txt');
    const restored = await farebox(place, ['restore', location, '--identity', key]);
    assert.equal(restored.code, 0, restored.error);
    await servesAgain(place, secret);
  });

  test('a restore of a missing file names it and leaves nothing', async () => {
    const place = emptyFolder();
    const { code, error } = await farebox(place, ['restore', 'missing.tar.gz']);
    assert.equal(code, 1);
    assert.match(error, /no such file.*missing\.tar\.gz/);
    assert.deepEqual(readdirSync(place), []);
  });

  test('a restore in a folder that cannot be written names the next step', async () => {
    const { code, error } = await farebox('/proc', ['restore', 'missing.tar.gz']);
    assert.equal(code, 1);
    assert.match(error, /^The backup is unpacked in the working directory, and \/proc cannot be/);
    assert.match(error, /: run the command in another folder$/m);
  });

  test('a damaged backup is refused and leaves no database', async () => {
    const { folder, app } = await shop();
    const { location } = await backup(folder, '--to', './kept');
    await app.stop();
    const bytes = readFileSync(location);
    const place = emptyFolder();
    const damaged = join(place, 'damaged.tar.gz');
    for (const at of [0.2, 0.5, 0.9]) {
      const copy = Buffer.from(bytes);
      const from = Math.floor(copy.length * at);
      // One changed byte can be harmless: within zeros, other distances of a match mean the same.
      for (let index = from; index < from + 16; index += 1) copy[index] = (copy[index] ?? 0) ^ 0xff;
      writeFileSync(damaged, copy);
      const { code } = await farebox(place, ['restore', damaged]);
      assert.equal(code, 1);
    }
    writeFileSync(damaged, bytes.subarray(0, bytes.length / 2));
    assert.equal((await farebox(place, ['restore', damaged])).code, 1);
    assert.ok(!existsSync(join(place, 'data', 'farebox.db')));
  });

  test('a backup stores nothing if the audit of the copy finds a difference', async () => {
    const { folder, app } = await shop();
    await app.app.stores.store.query('UPDATE ledger_account SET balance_nano = balance_nano + 1');
    const { code, error } = await farebox(folder, ['backup', '--to', './kept']);
    assert.equal(code, 1);
    assert.match(error, /The audit of the copy found differences, so no backup was stored/);
    assert.ok(!existsSync(join(folder, 'kept')));
    await app.stop();
  });

  test('backups go to S3-compatible storage, older ones are deleted, and restore reads them', async () => {
    const storage = new S3Storage('test-key');
    const endpoint = await storage.start();
    after(() => storage.stop());
    const { folder, app, secret } = await shop(
      `backup: { to: 's3://shop/daily', keep: 2, s3: { endpoint: '${endpoint}', region: eu, accessKeyId: test-key, secretAccessKey: s } }`,
    );
    const made: Report[] = [];
    for (let at = 0; at < 3; at += 1) made.push(await backup(folder));
    assert.equal(made[2]?.deleted.length, 1);
    const kept = [...storage.objects.keys()].map((path) => `s3:/${path}`);
    assert.deepEqual(kept, [made[1]?.location, made[2]?.location]);
    await app.stop();

    const place = emptyFolder();
    const restored = await farebox(place, ['restore', made[2]?.location ?? '']);
    assert.equal(restored.code, 1, 'without credentials the storage refuses');
    const variables = {
      AWS_ACCESS_KEY_ID: 'test-key',
      AWS_SECRET_ACCESS_KEY: 's',
      AWS_REGION: 'eu',
      AWS_ENDPOINT_URL: endpoint,
    };
    Object.assign(process.env, variables);
    const allowed = await farebox(place, ['restore', made[2]?.location ?? '']);
    for (const name of Object.keys(variables)) delete process.env[name];
    assert.equal(allowed.code, 0, allowed.error);
    await servesAgain(place, secret);
  });

  test('a backup to storage that accepts connections and does not respond fails', async (t) => {
    const endpoint = await rawServer(t, () => undefined);
    const s3 = { endpoint, region: 'eu', accessKeyId: 'test-key', secretAccessKey: 's' };
    const destination = await openDestination('s3://shop/daily', s3, 200);
    const file = join(emptyFolder(), 'file');
    writeFileSync(file, 'an archive');
    await assert.rejects(
      destination.put(file, wrongName(2026), () => undefined),
      /timed out/,
    );
    await assert.rejects(destination.names(), /timed out/);
  });

  test('a backup deletes backups of the time before the clock was set back, and not itself', async () => {
    const { folder, app } = await shop('backup: { to: ./kept, keep: 2 }');
    const kept = join(folder, 'kept');
    const first = await backup(folder);
    for (const year of [2098, 2099]) writeFileSync(join(kept, wrongName(year)), '');
    const second = await backup(folder);
    assert.deepEqual(second.deleted, [wrongName(2098), wrongName(2099)]);
    const names = [first, second].map(({ location }) => basename(location));
    assert.deepEqual(readdirSync(kept).sort(), names);
    await app.stop();
  });

  test('a backup deletes what a killed copy has left in the folder days ago', async () => {
    const { folder, app } = await shop();
    const kept = join(folder, 'kept');
    const left = ['farebox-20250101T000000000Z.tar.gz.part', 'farebox-notes.part', 'other.part'];
    mkdirSync(kept);
    for (const name of left) {
      writeFileSync(join(kept, name), 'a part');
      utimesSync(join(kept, name), 1, 1);
    }
    await backup(folder, '--to', './kept');
    assert.deepEqual(
      readdirSync(kept).filter((name) => name.endsWith('.part')),
      left.slice(1),
    );
    await app.stop();
  });

  test('parts of killed copies are deleted even if they leave no space for the next copy', async () => {
    const folder = emptyFolder();
    const name = 'farebox-20250101T000000000Z.tar.gz.part';
    writeFileSync(join(folder, name), 'a part');
    utimesSync(join(folder, name), 1, 1);
    const destination = await openDestination(folder, undefined);
    // Any failed copy behaves like that to a full disk.
    const missing = join(root, 'missing');
    await assert.rejects(destination.put(missing, wrongName(2026), () => undefined));
    assert.ok(!existsSync(join(folder, name)));
  });

  test('backups by hand to another place are kept', async () => {
    const { folder, app } = await shop('backup: { to: ./kept, keep: 1 }');
    for (const place of ['kept', 'kept', 'archive', 'archive']) {
      await backup(folder, '--to', `./${place}`);
    }
    const counts = ['kept', 'archive'].map((place) => readdirSync(join(folder, place)).length);
    assert.deepEqual(counts, [1, 2]);
    await app.stop();
  });

  test('a backup of PostgreSQL restores into an empty PostgreSQL, and not into SQLite', async () => {
    const source = await emptyPostgresDatabase();
    const { folder, app, secret } = await shop('', source);
    const journalIn = (where: string): string => join(where, 'data/journal/settles-9.journal');
    writeFileSync(journalIn(folder), 'in the backup');
    const { location, audit } = await backup(folder, '--to', './kept');
    assert.equal(await chat(app, secret), 200, 'the server goes on');
    await app.stop();

    const place = emptyFolder();
    const target = await emptyPostgresDatabase();
    writeFileSync(join(place, 'farebox.yaml'), yamlOf(`database: '${target}'`));
    // Settles that waited here when the former database was lost.
    mkdirSync(dirname(journalIn(place)), { recursive: true });
    writeFileSync(journalIn(place), 'on this disk');
    const restored = await farebox(place, ['restore', location, '--json']);
    assert.equal(restored.code, 0, restored.error);
    assert.equal(readFileSync(journalIn(place), 'utf8'), 'on this disk\nin the backup');
    const body = JSON.parse(restored.out) as { transfers: number; owedUsd: string };
    assert.equal(body.transfers, audit.transfers);
    assert.equal(body.owedUsd, audit.owedUsd);
    await servesAgain(place, secret, target);

    const file = emptyFolder();
    writeFileSync(join(file, 'farebox.yaml'), yamlOf());
    const refused = await farebox(file, ['restore', location]);
    assert.match(refused.error, /This is a backup of PostgreSQL/);
  });

  test('operators get one e-mail about a failed backup, which is tried again after an hour', async () => {
    const mailServer = await startMailServer({ user: 'farebox', password: 'word' });
    const dataFolder = emptyFolder();
    writeFileSync(join(dataFolder, 'file'), 'not a folder');
    const yaml = yamlOf(`backup: { to: ./file }
email: { host: 127.0.0.1, port: ${mailServer.port}, tls: none, user: farebox, password: word, from: noreply@api.example, operators: [ops@api.example] }`);
    writeFileSync(join(dataFolder, 'farebox.yaml'), yaml);
    const { app, runMinute } = await startWithMinutes({ yaml, dataFolder });
    runMinute();
    const mail = await until(async () => mailServer.mails[0]);
    assert.deepEqual(mail.to, ['ops@api.example']);
    assert.match(mail.headers, /^Subject: .*: the scheduled backup failed$/m);
    assert.match(mail.text, /Reason: \S+/);
    const metrics = await (await fetch(`${app.app.address}/metrics`)).text();
    assert.match(metrics, /^farebox_backup_last_success_timestamp_seconds 0$/m);
    const { store } = app.app.stores;
    const runs = () => store.query('SELECT id FROM backup_run');
    assert.equal((await runs()).length, 1);
    // A worker that does not begin leaves no row.
    await store.query('DELETE FROM backup_run');
    runMinute();
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    assert.deepEqual(await runs(), []);
    await app.stop();
    await mailServer.stop();
  });

  test('a scheduled backup runs in the server, and readiness, metrics and the operator route show it', async () => {
    const dataFolder = emptyFolder();
    const yaml = yamlOf(`backup: { to: ./kept }`);
    writeFileSync(join(dataFolder, 'farebox.yaml'), yaml);
    const { app, runMinute } = await startWithMinutes({ yaml, dataFolder });
    const secret = await app.key({ kind: 'ADMIN' });
    // The clock was a year ahead, and was set back.
    const aheadMs = Date.now() + 365 * DAY_MS;
    await app.app.stores.store.query(
      "INSERT INTO backup_run (id, started_ms, ended_ms, location) VALUES ('ahead', $1, $1, 'x')",
      [aheadMs],
    );
    runMinute();
    const body = await until(async () => {
      const response = await fetch(`${app.url}/admin/backups`, {
        headers: { authorization: `Bearer ${secret}` },
      });
      const backups = (await response.json()) as {
        isScheduled: boolean;
        lastSuccessAt: string | null;
        data: readonly { location: string; problem: string | null }[];
      };
      return backups.lastSuccessAt === null ? undefined : backups;
    });
    assert.equal(body.isScheduled, true);
    assert.equal(body.data[0]?.problem, null);
    assert.ok(existsSync(body.data[0]?.location ?? ''));
    const ready = await fetch(`${app.app.address}/readyz`);
    const { parts } = (await ready.json()) as { parts: { backups: unknown } };
    assert.deepEqual(parts.backups, { ok: true, lastSuccessAt: body.lastSuccessAt });
    const metrics = await (await fetch(`${app.app.address}/metrics`)).text();
    assert.match(metrics, /^farebox_backup_last_success_timestamp_seconds \d{10}$/m);
    runMinute();
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(readdirSync(join(dataFolder, 'kept')).length, 1, 'the next one is due in a day');
    await app.stop();
  });

  for (const [what, more] of [
    ['another database, which needs a restart', 'database: sqlite:./another.db'],
    ['an invalid section', 'rpc: 5'],
  ] as const) {
    test(`a scheduled backup is of the settings in force if the file has ${what}`, async (t) => {
      const dataFolder = emptyFolder();
      const yaml = yamlOf(`backup: { to: ./kept }`);
      const { app, runMinute } = await startWithMinutes({ yaml, dataFolder });
      t.after(() => app.stop());
      writeFileSync(join(dataFolder, 'farebox.yaml'), `${yaml}\n${more}\n`);
      runMinute();
      const kept = await until(async () => {
        const path = join(dataFolder, 'kept');
        return existsSync(path) && readdirSync(path).length > 0 ? readdirSync(path) : undefined;
      });
      assert.equal(kept.length, 1);
      assert.equal(existsSync(join(dataFolder, 'another.db')), false);
      const { store } = app.app.stores;
      assert.equal((await store.query('SELECT id FROM backup_run')).length, 1);
    });
  }

  test('a backup of a killed process has failed, and is repeated after an hour', async () => {
    const dataFolder = emptyFolder();
    const yaml = yamlOf('backup: { to: ./kept }');
    writeFileSync(join(dataFolder, 'farebox.yaml'), yaml);
    const first = await startTestApp({ yaml, dataFolder });
    await first.app.stores.store.query(
      "INSERT INTO backup_run (id, started_ms, place) VALUES ('killed', $1, $2)",
      [Date.now() - 2 * HOUR_MS, join(dataFolder, 'kept')],
    );
    await first.stop();
    const { app, runMinute } = await startWithMinutes({ yaml, dataFolder });
    runMinute();
    await until(async () => (existsSync(join(dataFolder, 'kept')) ? true : undefined));
    const [run] = await app.app.stores.store.query<{ problem: string }>(
      "SELECT problem FROM backup_run WHERE id = 'killed'",
    );
    assert.match(run?.problem ?? '', /was killed/);
    await app.stop();
  });

  test('a backup to another place does not delay the scheduled one', async () => {
    const { folder, app } = await shop('backup: { to: ./kept }');
    await backup(folder, '--to', './other');
    await app.stop();
    const yaml = yamlOf(`backup: { to: ${join(folder, 'kept')} }`);
    const dataFolder = join(folder, 'data');
    writeFileSync(join(dataFolder, 'farebox.yaml'), yaml);
    const later = await startWithMinutes({ yaml, dataFolder });
    later.runMinute();
    await until(async () => (existsSync(join(folder, 'kept')) ? true : undefined));
    await later.app.stop();
  });

  test('a backup to another place is not the last success of the configured one', async (t) => {
    const folder = emptyFolder();
    const dataFolder = join(folder, 'data');
    const yaml = yamlOf(`backup: { to: ${join(folder, 'kept')}, everyHours: 0 }`);
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const { app, runMinute } = await startWithMinutes({ yaml, dataFolder });
    t.after(() => app.stop());
    const lastSuccess = async (): Promise<string | null> => {
      runMinute();
      await new Promise((resolve) => setTimeout(resolve, 300));
      const ready = await fetch(`${app.app.address}/readyz`);
      const { parts } = (await ready.json()) as {
        parts: { backups: { lastSuccessAt: string | null } };
      };
      return parts.backups.lastSuccessAt;
    };
    await backup(folder, '--to', './other');
    assert.equal(await lastSuccess(), null);
    await backup(folder);
    await until(async () => (await lastSuccess()) ?? undefined);
  });

  test('a backup that the stop of the server interrupts has failed, and is due again in an hour', async () => {
    const storage = createServer(() => undefined); // it never responds
    await new Promise<void>((resolve) => storage.listen(0, '127.0.0.1', resolve));
    const endpoint = `http://127.0.0.1:${(storage.address() as AddressInfo).port}`;
    let requests = 0;
    storage.on('request', () => (requests += 1));
    const dataFolder = emptyFolder();
    const yaml = yamlOf(
      `backup: { to: 's3://shop/daily', s3: { endpoint: '${endpoint}', region: eu, accessKeyId: a, secretAccessKey: s } }`,
    );
    writeFileSync(join(dataFolder, 'farebox.yaml'), yaml);
    const lines: LogLine[] = [];
    const begin = async (laterMs: number): Promise<TestApp> => {
      const log = memoryLog(lines);
      const { app, runMinute } = await startWithMinutes({ yaml, dataFolder, log }, laterMs);
      runMinute();
      return app;
    };
    const first = await begin(0);
    await until(async () => requests || undefined);
    await first.stop();
    assert.deepEqual(
      lines.filter(({ message }) => message === 'Backup stored'),
      [],
    );
    const second = await begin(HOUR_MS);
    const secret = await second.key({ kind: 'ADMIN' });
    const response = await fetch(`${second.url}/admin/backups`, {
      headers: { authorization: `Bearer ${secret}` },
    });
    const { data } = (await response.json()) as { data: readonly { problem: string | null }[] };
    assert.match(data.at(-1)?.problem ?? '', /server was stopped/);
    await until(async () => (requests > 1 ? true : undefined));
    await second.stop();
    storage.closeAllConnections();
    storage.close();
  });

  test('a server that stops while a backup begins does not report the backup before it', async () => {
    const dataFolder = emptyFolder();
    const yaml = yamlOf('backup: { to: ./kept }');
    writeFileSync(join(dataFolder, 'farebox.yaml'), yaml);
    const lines: LogLine[] = [];
    const log = memoryLog(lines);
    const { app, runMinute } = await startWithMinutes({ yaml, dataFolder, log });
    await app.app.stores.store.query(
      "INSERT INTO backup_run (id, started_ms, ended_ms) VALUES ('before', $1, $1)",
      [Date.now() - 2 * DAY_MS],
    );
    runMinute();
    await app.stop();
    const shown = lines.map(({ message }) => message).filter((text) => /backup/i.test(text));
    assert.deepEqual(shown, []);
  });
});

/** Starts an app whose clock is ahead. `runMinute` runs the jobs of a minute. */
async function startWithMinutes(
  options: TestAppOptions,
  aheadMs = 0,
): Promise<{ readonly app: TestApp; readonly runMinute: () => void }> {
  const clock = systemClock();
  const minutes: (() => void)[] = [];
  const app = await startTestApp({
    ...options,
    clock: {
      ...clock,
      nowMs: () => clock.nowMs() + aheadMs,
      every: (ms, work) => {
        if (ms === MINUTE_MS) minutes.push(work);
        return clock.every(ms, work);
      },
    },
  });
  const runMinute = (): void => {
    for (const run of minutes) run();
  };
  return { app, runMinute };
}

/** A backup that was made while the clock was decades ahead. */
function wrongName(year: number): string {
  return `farebox-${year}0101T000000000Z.tar.gz`;
}

async function until<T>(read: () => Promise<T | undefined>): Promise<T> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const value = await read();
    if (value !== undefined) return value;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('It did not happen within 20 s');
}
