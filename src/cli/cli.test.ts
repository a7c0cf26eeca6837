import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { DatabaseSync } from 'node:sqlite';
import { type ProcessResponses, processResponses } from '../../test/app/process-responses.ts';
import { freePort } from '../../test/support/free-port.ts';
import { TestUpstream } from '../../test/support/test-upstream.ts';
import { commandLine, commandsBelow, nameOf, runCommand } from './cli.ts';

const BINARY = join(import.meta.dirname, '..', '..', 'bin', 'farebox.mjs');
const NOWHERE = { write: () => undefined };
const { program: PROGRAM } = commandLine({
  argv: [],
  env: {},
  cwd: '',
  stdout: NOWHERE,
  stderr: NOWHERE,
  onSignal: () => undefined,
});
const COMMANDS = commandsBelow(PROGRAM);
const LOCAL = 'embedded: { enabled: false }\ndiscovery: { enabled: false }\n';

/** What `--json` of the commands below carries. */
interface Answer {
  readonly isOperator: boolean;
  readonly link: string;
  readonly id: string;
  readonly secret: string;
  readonly plan: string;
  readonly limitUsd: string;
  readonly limitPeriod: string;
  readonly privacy: string;
  readonly models: readonly string[];
  readonly diemLeftToday: string;
  readonly balanceUsd: string;
  readonly period: string;
  readonly usd: string;
  readonly tag: string | null;
  readonly value: string | null;
}

interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

type Word = string | { readonly env: Record<string, string> };

/** What is in the words; `PORT` of the folder's server is its own affair. */
function callOf(folder: string, words: readonly Word[]) {
  const argv = words.filter((word) => typeof word === 'string');
  const env = { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: '' };
  Object.assign(env, ...words.filter((word) => typeof word !== 'string').map((word) => word.env));
  return { argv, env };
}

/** Runs a command in this process: a start takes ten times as long as most of them. */
async function farebox(folder: string, ...words: readonly Word[]): Promise<Ended> {
  const { argv, env } = callOf(folder, words);
  const said = { out: '', err: '' };
  const code = await runCommand({
    argv,
    env,
    cwd: folder,
    stdout: { write: (text) => void (said.out += text) },
    stderr: { write: (text) => void (said.err += text) },
    onSignal: () => undefined,
  });
  return { code, ...said };
}

/** Runs the real binary in a folder. */
function program(folder: string, ...words: readonly Word[]): Promise<Ended> {
  const { argv, env } = callOf(folder, words);
  return new Promise((resolve) => {
    execFile(process.execPath, [BINARY, ...argv], { cwd: folder, env }, (error, out, err) => {
      const code = error === null ? 0 : Number(error.code);
      resolve({ code, out, err });
    });
  });
}

/** For what ends before anything is opened. */
async function inProcess(...argv: string[]): Promise<Ended> {
  const cwd = mkdtempSync(join(tmpdir(), 'farebox-words-'));
  const ended = await farebox(cwd, ...argv);
  rmSync(cwd, { recursive: true, force: true });
  return ended;
}

async function startServer(
  folder: string,
): Promise<{ url: string; key: string; child: ChildProcess; answers: ProcessResponses }> {
  const answers = processResponses();
  const env = { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: '0', ...answers.env };
  const child = spawn(process.execPath, [BINARY, 'serve'], { cwd: folder, env });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => void (said += chunk.toString()));
  for await (const chunk of child.stdout) {
    said += String(chunk);
    const url = /listens on (\S+)/.exec(said)?.[1];
    const key = /^ {4}(SVC_\S+)$/m.exec(said)?.[1];
    if (url !== undefined && key !== undefined && said.includes('--help')) {
      await answers.follow(url);
      return { url, key, child, answers };
    }
  }
  throw new Error(`The server did not start: ${said}`);
}

describe('commands beside a running server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  let upstream: TestUpstream;
  let server: Awaited<ReturnType<typeof startServer>>;

  before(async () => {
    upstream = await TestUpstream.start();
    // Nobody listens where it says: on the usual port somebody may.
    const listen = `listen: { port: ${await freePort()} }`;
    writeFileSync(
      join(folder, 'farebox.yaml'),
      `${LOCAL}${listen}\nengines: { rack: { url: ${upstream.url}, apiKey: very-secret-word } }
models: [{ id: atlas-24b, type: text, context: 4096, price: { input: 0.3, output: 1.2 }, replicas: [{ engine: rack, model: m }] }]
`,
    );
    server = await startServer(folder);
  });
  after(async () => {
    const ended = once(server.child, 'exit');
    server.child.kill('SIGTERM');
    await ended;
    await upstream.kill();
    rmSync(folder, { recursive: true, force: true });
    server.answers.assertFitting();
  });

  const models = (key: string): Promise<number> =>
    fetch(`${server.url}/models?type=all`, { headers: { authorization: `Bearer ${key}` } }).then(
      (answer) => answer.status,
    );
  const json = async (...argv: string[]): Promise<Answer> => {
    const { code, out, err } = await farebox(folder, ...argv, '--json');
    assert.equal(code, 0, err);
    return JSON.parse(out) as Answer;
  };

  test('a budget is made, listed, changed and taken away', async () => {
    const made = await json('budgets', 'create', '--usd=2.50', '--period=week', '--tag=user');
    assert.deepEqual([made.period, made.usd, made.tag, made.value], ['WEEK', '2.50', 'user', null]);
    const all = await json('budgets', 'create', '--usd=100', '--period=month');
    const listed = await farebox(folder, 'budgets', 'list');
    assert.match(listed.out, /budget_\w+ +each user +2\.50 USD a week +- /);
    assert.match(listed.out, /budget_\w+ +everything +100\.00 USD a month +0\.00 USD /);
    const changed = await json('budgets', 'update', made.id, '--usd=3');
    assert.equal(changed.usd, '3.00');
    for (const { id } of [made, all]) {
      assert.equal((await farebox(folder, 'budgets', 'delete', id)).code, 0);
    }
    const again = await farebox(folder, 'budgets', 'delete', made.id);
    assert.deepEqual([again.code, /has no budget/.test(again.err)], [1, true]);
    assert.match((await farebox(folder, 'budgets', 'list')).out, /has no budgets/);
  });

  test('a key that was made is listed with its limits, works, and is revoked', async () => {
    const made = await json(
      'keys',
      'create',
      '--description=laptop',
      '--limit-usd=2.50',
      '--period=month',
      '--expires=30d',
      '--models=a, b',
      '--privacy=private_only',
    );
    assert.match(made.secret, /^SVC_INFERENCE_KEY_/);
    assert.equal(made.limitUsd, '2.50');
    assert.deepEqual(
      [made.limitPeriod, made.privacy, made.models],
      ['MONTH', 'PRIVATE_ONLY', ['a', 'b']],
    );
    assert.equal(await models(made.secret), 200);
    const listed = await farebox(folder, 'keys', 'list');
    assert.match(listed.out, /ENDS IN +DESCRIPTION/);
    assert.match(listed.out, /laptop .* 2\.50 USD a month/);
    assert.ok(!listed.out.includes(made.secret));
    assert.equal((await farebox(folder, 'keys', 'revoke', made.id)).code, 0);
    const again = await farebox(folder, 'keys', 'revoke', made.id);
    assert.deepEqual([again.code, /no active key/.test(again.err)], [1, true]);
    const left = await farebox(folder, 'keys', 'list');
    assert.match(left.out, /first key/);
    assert.doesNotMatch(left.out, /laptop/);
    const database = new DatabaseSync(join(folder, 'data', 'farebox.db'), { readOnly: true });
    const caps = database.prepare('SELECT usd_limit_nano AS cap FROM ledger_allowance').all();
    database.close();
    assert.deepEqual(
      caps.map(({ cap }) => cap),
      [2_500_000_000],
    );
  });

  test('credit goes to the account, once per reference, and can be taken back', async () => {
    const account = await json('accounts', 'create', 'alice', '--plan', 'pro', '--daily-diem', '3');
    assert.deepEqual([account.plan, account.diemLeftToday], ['pro', '3.00']);
    const argv = ['credit', '25', '--account', 'alice', '--reference', 'invoice-1'];
    assert.equal((await json(...argv)).balanceUsd, '25.00');
    assert.deepEqual(await json(...argv), {
      accountId: account.id,
      amountUsd: '25.00',
      balanceUsd: '25.00',
      isRepeat: true,
    });
    const again = await farebox(folder, ...argv);
    assert.match(again.out, /under this reference before; .* nothing was changed now/);
    const other = await farebox(folder, 'credit', '26', ...argv.slice(2));
    assert.equal(other.code, 1);
    assert.match(
      other.err,
      /"invoice-1" stands for a credit of 25\.00 USD to acct_\w+; nothing was/,
    );
    const back = await farebox(folder, 'debit', '0.000000001', '--account', account.id);
    assert.match(back.out, /taken from the account "alice"; its balance is 24\.999999999 USD/);
    const tooMuch = await farebox(folder, 'debit', '30', '--account', 'alice');
    assert.equal(tooMuch.code, 1);
    assert.match(tooMuch.err, /take 30\.00 USD or less/);
    const unknown = await farebox(folder, 'credit', '1', '--account', 'alise');
    assert.match(unknown.err, /There is no account "alise" \(did you mean "alice"\?\)/);
    const made = await json('accounts', 'update', 'alice', '--operator');
    const unmade = await json('accounts', 'update', 'alice', '--no-operator');
    assert.deepEqual([made.isOperator, unmade.isOperator], [true, false]);
    await json('accounts', 'update', 'alice', '--disable');
    const listed = await farebox(folder, 'accounts', 'list');
    assert.match(listed.out, /alice +pro +24\.999999999 +3\.00 .* disabled/);
  });

  test('a link signs in as an ADMIN key of the account, which has to have one', async () => {
    const { link } = await json('sign-in');
    assert.match(link, /\/console\/sign-in#[\w-]{43}$/);
    const none = await farebox(folder, 'sign-in', '--account', 'alice');
    assert.equal(none.code, 1);
    assert.match(none.err, /"alice" has no ADMIN key; make one with "farebox keys create --admin/);
  });

  test('the models come from the configuration when another port listens', async () => {
    const { out } = await farebox(folder, 'models');
    assert.match(out, /No server listens; the configuration offers:/);
    assert.match(out, /atlas-24b +text +4096 +0\.3 in, 1\.2 out .*rack \(127\.0\.0\.1:\d+\)/);
  });

  test('the models come from the running server when it listens where it should', async () => {
    const port = new URL(server.url).port;
    writeFileSync(join(folder, 'listen.yaml'), `${LOCAL}listen: { port: ${port} }\n`);
    const env = { FAREBOX_CONFIG: 'listen.yaml' };
    const { out } = await farebox(folder, { env }, 'models', '--json');
    const offer = JSON.parse(out) as { server: string; models: { id: string }[] };
    assert.equal(offer.server, server.url);
    assert.ok(offer.models.some((model) => model.id === 'atlas-24b'));
  });

  test('check probes the engine, asks the database and hides the secret', async () => {
    const { code, out } = await farebox(folder, 'check');
    assert.equal(code, 0, out);
    assert.match(out, /engine rack +note +answers in \d+ ms with 2 models, but does not name m/);
    assert.match(out, /database +ok +sqlite answers/);
    assert.ok(!out.includes('very-secret-word'));
  });

  test('the audit is clean, no command began an epoch, and the server still owns its folder', async () => {
    const { code, out } = await program(folder, 'audit');
    assert.equal(code, 0);
    assert.match(out, /Every balance is the sum of its postings/);
    const database = new DatabaseSync(join(folder, 'data', 'farebox.db'), { readOnly: true });
    const epochs = database.prepare('SELECT count(*) AS count FROM ledger_epoch').get();
    database.close();
    // Beside a file reservations live in memory: the server has no epoch either.
    assert.equal(epochs?.['count'], 0);
    const second = await program(folder, 'serve');
    assert.equal(second.code, 1);
    assert.match(second.err, /Another server runs on the data folder/);
    assert.equal(await models(server.key), 200);
  });

  test('an agent gets a key with a cap, and its settings are written beside a copy of the old ones', async () => {
    const file = join(folder, 'claude', 'settings.json');
    const env = { CLAUDE_CONFIG_DIR: join(folder, 'claude'), CODEX_HOME: join(folder, 'codex') };
    const at = `--url=${server.url}`;
    const printed = await farebox(folder, { env }, 'agents', 'claude', at);
    assert.equal(printed.code, 0, printed.err);
    assert.match(printed.out, /^export ANTHROPIC_MODEL=atlas-24b$/m);
    assert.match(printed.out, /may spend 5\.00 USD a day/);
    assert.ok(!existsSync(file));
    mkdirSync(join(folder, 'claude'));
    writeFileSync(file, '{"theme":"dark","env":{"A":"1"}}');
    const words = [
      'agents',
      'claude',
      '--write',
      at,
      '--limit-usd=0.5',
      '--period=MONTH',
      '--json',
    ];
    const written = await farebox(folder, { env }, ...words);
    assert.equal(written.code, 0, written.err);
    const { backup, secret } = JSON.parse(written.out);
    assert.equal(readFileSync(backup, 'utf8'), '{"theme":"dark","env":{"A":"1"}}');
    const settings = JSON.parse(readFileSync(file, 'utf8'));
    assert.equal(settings.theme, 'dark');
    assert.equal(settings.env.A, '1');
    assert.equal(settings.env.ANTHROPIC_BASE_URL, new URL('/api', server.url).href);
    assert.equal(settings.env.ANTHROPIC_AUTH_TOKEN, secret);
    assert.equal(await models(settings.env.ANTHROPIC_AUTH_TOKEN), 200);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const { out } = await farebox(folder, 'keys', 'list', '--json');
    const caps = (JSON.parse(out) as Answer[]).map((key) => `${key.limitUsd} ${key.limitPeriod}`);
    assert.ok(caps.includes('0.50 MONTH') && caps.includes('5.00 EPOCH'), out);

    const codex = await farebox(folder, { env }, 'agents', 'codex', '--write', at);
    assert.equal(codex.code, 0, codex.err);
    const toml = readFileSync(join(folder, 'codex', 'config.toml'), 'utf8');
    assert.match(toml, /^model = "atlas-24b"$/m);
    assert.match(toml, /^model_context_window = 4096$/m);
    assert.match(toml, /^experimental_bearer_token = "SVC_INFERENCE_KEY_/m);
    writeFileSync(file, '// mine\n{}');
    const refused = await farebox(folder, { env }, 'agents', 'claude', '--write', at);
    assert.equal(refused.code, 1);
    assert.match(refused.err, /is left as it is: It is no JSON object/);
    const after = await farebox(folder, 'keys', 'list', '--json');
    assert.equal(JSON.parse(after.out).length, JSON.parse(out).length + 1);
  });
});

describe('commands without a server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  test('check of an empty folder makes nothing and finds nothing wrong', async () => {
    writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
    const { code, out } = await farebox(folder, 'check', '--json');
    assert.equal(code, 0);
    const report = JSON.parse(out) as { findings: { what: string; state: string }[] };
    const database = report.findings.find((finding) => finding.what === 'database');
    assert.equal(database?.state, 'note');
    assert.throws(() => new DatabaseSync(join(folder, 'data', 'farebox.db'), { readOnly: true }));
  });

  test('check ends with 1 when an engine is down or the file is wrong', async () => {
    writeFileSync(
      join(folder, 'farebox.yaml'),
      `${LOCAL}engines: { gone: { url: http://127.0.0.1:1/v1 } }\n`,
    );
    const down = await farebox(folder, 'check');
    assert.equal(down.code, 1);
    assert.match(down.out, /engine gone +wrong/);
    writeFileSync(join(folder, 'farebox.yaml'), 'engins: {}\n');
    const wrong = await farebox(folder, 'check');
    assert.equal(wrong.code, 1);
    assert.match(wrong.err, /farebox\.yaml:1.*engines/s);
  });

  test('check ends with 1 for an unknown RPC network, dead nodes, a dead search provider and a missing persona folder', async () => {
    const yaml = `${LOCAL}personas: { folder: ./nowhere }
search: { provider: searxng, url: http://127.0.0.1:1 }
rpc:
  publicNodes: false
  networks:
    ethereum-mainet: { upstreams: [{ url: http://127.0.0.1:1 }] }
    base-mainnet: { upstreams: [{ url: http://127.0.0.1:1, name: mine }] }
`;
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const { code, out } = await farebox(folder, 'check');
    assert.equal(code, 1);
    assert.match(out, /personas +wrong +personas\.folder cannot be read: .*nowhere/);
    assert.match(out, /search searxng +wrong +The search provider did not answer: .*ECONNREFUSED/);
    assert.match(out, /rpc ethereum-mainet +wrong +.*did you mean "ethereum-mainnet"/);
    assert.match(out, /rpc mine +wrong +Gives no usable response to eth_chainId/);
  });

  test('check warns of a price per token where a price per million tokens is wanted', async () => {
    const yaml = `${LOCAL}models:
  - { id: a, context: 8000, price: { input: 0.0000003, output: 1.2 }, replicas: [] }
`;
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const { code, out, err } = await farebox(folder, 'check');
    assert.equal(code, 0, out);
    assert.match(err, /models\[0\]\.price\.input: 3e-7 USD per 1,000,000 tokens .*multiplied by/);
    assert.ok(!err.includes('price.output'));
  });

  test('check refuses what serve refuses, with its line, and so does serve', async () => {
    const yaml = `${LOCAL}http: { trustProxy: [10.0.0.0/8, nonsense] }\ncluster: { workers: 4 }\n`;
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    for (const command of ['check', 'serve']) {
      const { code, err } = await program(folder, command);
      assert.equal(code, 1);
      assert.match(err, /farebox\.yaml:3:\d+: http\.trustProxy\[1\]: .*not "nonsense"/);
      assert.match(err, /farebox\.yaml:4:\d+: cluster\.workers: 4 workers need a database/);
    }
  });

  test('a busy port and a bad folder are told in words, by serve and by check', async () => {
    writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
    writeFileSync(join(folder, 'file'), '');
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const { port } = holder.address() as AddressInfo; // a TCP server has one
    const busy = await program(folder, 'serve', '--port', String(port));
    assert.deepEqual(
      [busy.code, /is taken by another program: .*--port/.test(busy.err)],
      [1, true],
    );
    const check = await farebox(folder, 'check', { env: { PORT: String(port) } });
    assert.equal(check.code, 1);
    assert.match(check.out, /listen +wrong +Port \d+ of 127\.0\.0\.1 is taken/);
    holder.close();
    const bad = await program(folder, 'serve', '--port', '0', '--data', 'file/data');
    assert.equal(bad.code, 1);
    assert.match(bad.err, /The data folder .*file\/data cannot be used: .*--data/);
  });

  test('check starts every embedded engine and names what is missing', async () => {
    const yaml = 'listen: { port: 0 }\ndiscovery: { enabled: false }\n';
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const fine = await farebox(folder, 'check');
    assert.match(fine.out, /engine embedded +ok +works with node-llama-cpp/);
    assert.match(fine.out, /engine embedded-sentences +ok/);
    assert.match(fine.out, /engine embedded-cutout +ok +works with onnxruntime-node, sharp/);
    assert.match(fine.out, /engine embedded-video +ok/);
    assert.match(fine.out, /engine embedded-speech +ok +works with sherpa-onnx-node/);
    const films = `${yaml}embedded: { demo: false, sentences: false }\n`;
    writeFileSync(join(folder, 'farebox.yaml'), `${films}media: { ffmpeg: /no/ffmpeg }\n`);
    const wrong = await farebox(folder, 'check');
    assert.equal(wrong.code, 1);
    assert.match(wrong.out, /engine embedded-video +wrong +.*\/no\/ffmpeg is not a program/);
  });

  test('without an account the commands say how to get one', async () => {
    writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
    const { code, err } = await farebox(folder, 'keys', 'list');
    assert.equal(code, 1);
    assert.match(err, /start the server once with "farebox serve"/);
  });

  test('an audit with a difference names it and ends with 1', async () => {
    const database = new DatabaseSync(join(folder, 'data', 'farebox.db'));
    database.exec(
      "INSERT INTO ledger_account (id, balance_nano, held_nano, daily_allocation_nano, daily_day, daily_spent_nano, daily_held_nano, created_ms) VALUES ('acct_x', 1, 0, 0, 0, 0, 0, 0)",
    );
    database.close();
    const { code, out } = await farebox(folder, 'audit');
    assert.equal(code, 1);
    assert.match(out, /acct_x +balance +0\.000000001 +0\.00/);
  });
});

describe('words that are wrong', () => {
  const rows: readonly (readonly [argv: string, says: RegExp])[] = [
    ['credits 5', /no command "credits". Did you mean "credit"\?/],
    ['keys', /keys create .*\n.*keys list/],
    ['keys create --expires yesterday', /a span such as 12h/],
    ['keys create --expires 2020-01-01', /must be in the future/],
    ['keys create --period yearly', /one of EPOCH, WEEK, MONTH, LIFETIME/],
    ['keys create --models a,,b', /names with commas/],
    ['budgets create --usd 5', /Say --usd and --period/],
    ['budgets create --usd 5 --period week --value x', /--value needs a --tag/],
    ['budgets update --usd 5', /Name one budget by its id/],
    ['accounts create', /Name one account/],
    ['accounts update alice', /Say what to change/],
    ['accounts update alice --enable --disable', /Choose/],
    ['credit -5', /above zero; use "farebox debit 5"/],
    ['credit', /Give one amount/],
    ['credit 5 6', /Give one amount/],
    ['credit 0', /above zero/],
    ['credit 1e3', /decimal amount such as 25/],
    ['credit 0.0000000001', /decimal amount/],
    ['audit now', /"now" is one word too many/],
    ['audit --fix', /"audit" has no option "--fix"/],
    ['serve --prot 1', /"serve" has no option "--prot" \(did you mean "--port"\?\)/],
    ['keys craete', /no command "keys craete". Did you mean "keys create"\?/],
    ['usage --by week', /--by must be one of day, model, account, key/],
    ['completion powershell', /no completion for "powershell"/],
    ['engines pull lama', /no engine "lama" \(did you mean "llama"\?\)/],
    ['models pull qwen3-0.6b --proxy nowhere', /--proxy must be an address/],
    ['models pull', /Name one model of the library: qwen3-0\.6b/],
  ];
  for (const [argv, says] of rows) {
    test(`"farebox ${argv}" is refused with the way out`, async () => {
      const { code, out, err } = await inProcess(...argv.split(' '));
      assert.equal(code, 2);
      assert.equal(out, '');
      assert.match(err, says);
    });
  }

  test('with --json a failure is a document too', async () => {
    for (const [argv, code, exit] of [
      ['keys craete --json', 'usage', 2],
      ['serve --prot 1 --json', 'usage', 2],
      ['models pull none --json', 'failed', 1],
    ] as const) {
      const { code: ended, out, err } = await inProcess(...argv.split(' '));
      assert.deepEqual([ended, err], [exit, '']);
      const { error } = JSON.parse(out) as { error: { code: string; message: string } };
      assert.equal(error.code, code);
      assert.ok(error.message.length > 10);
    }
  });

  test('--version says the number of the release', async () => {
    const { code, out } = await inProcess('--version');
    assert.equal(code, 0);
    assert.match(out, /^farebox \d+\.\d+\.\d+ \(\d{8}\.\d{6}\)\n$/);
  });

  test('a completion script knows every command and its options', async () => {
    const { out } = await inProcess('completion', 'bash');
    for (const command of COMMANDS) assert.ok(out.includes(command.name()), nameOf(command));
    assert.match(out, /"serve"\) words="[^"]*--port/);
    execFileSync('bash', ['-n'], { input: out });
  });

  test('a model that the library has not is refused with the nearest', async () => {
    const { code, err } = await inProcess('models', 'pull', 'qwen3-0.6');
    assert.equal(code, 1);
    assert.match(err, /did you mean "qwen3-0\.6b"/);
  });

  test('every command has help that shows how to call it', async () => {
    for (const name of COMMANDS.map(nameOf)) {
      const { code, out } = await inProcess(...name.split(' '), '--help');
      assert.equal(code, 0);
      assert.ok(out.includes(`Usage: farebox ${name}`), name);
    }
    const { out } = await inProcess('--help');
    for (const name of COMMANDS.map(nameOf)) assert.match(out, new RegExp(`^  ${name} `, 'm'));
  });
});
