/**
 * Unmodified Aider against a real server, over chat completions: edits in its own text format, a
 * repeated request after a failed edit, and a second run with the restored history, on engines of
 * each protocol. Each charge equals the usage of the engine. It is not part of the tests, because
 * it installs 0.5 GB.
 *
 * Run: node test/agents/aider.ts [folder of a Python environment with aider-chat 0.86.2]
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { startTestApp } from '../app/test-app.ts';
import { AgentEngines, type Model, MODELS } from './agent-engines.ts';
import { type Ended, execute } from './agent-fixture.ts';

const PACKAGE = 'aider-chat==0.86.2';

const folder = mkdtempSync(join(tmpdir(), 'farebox-aider-'));
const environment = await installedPython(process.argv[2]);
const engines = await AgentEngines.start();
const farebox = await startTestApp({ yaml: engines.yaml });

try {
  for (const model of MODELS) await session(model);
  await farebox.audit();
} finally {
  await farebox.stop();
  await engines.stop();
  rmSync(folder, { recursive: true, force: true });
}

async function installedPython(given: string | undefined): Promise<string> {
  if (given !== undefined) return resolve(given);
  const at = join(folder, 'python');
  const options = { cwd: folder, env: process.env };
  await execute('python3', ['-m', 'venv', at], options);
  const { code, err } = await execute(join(at, 'bin', 'pip'), ['install', PACKAGE], options);
  assert.equal(code, 0, err);
  return at;
}

function edit(before: string, after: string): string {
  return `hello.txt\n\`\`\`\n<<<<<<< SEARCH\n${before}=======\n${after}>>>>>>> REPLACE\n\`\`\`\n`;
}

async function session(model: Model): Promise<void> {
  const home = mkdtempSync(join(folder, 'home-'));
  const work = join(home, 'work');
  mkdirSync(work);
  const file = join(work, 'hello.txt');
  writeFileSync(file, 'forty-two\n');
  engines.play(
    [
      { text: edit('fifty\n', 'forty-three\n') },
      { text: `The text is another one. ${edit('forty-two\n', 'forty-three\n')}` },
      { text: 'It says “forty-three”.' },
    ],
    { hasTools: false },
  );
  const { secret, accountId } = await farebox.account('50');
  const before = await balance(accountId);
  const run = (...words: string[]): Promise<Ended> => {
    const env = {
      HOME: home,
      PATH: process.env['PATH'],
      NO_PROXY: '127.0.0.1',
      OPENAI_API_BASE: farebox.url,
      OPENAI_API_KEY: secret,
    };
    const id = `openai/${model}`;
    const models = ['--model', id, '--weak-model', id, '--edit-format', 'diff'];
    const quiet = ['--no-git', '--no-check-update', '--no-show-model-warnings', '--no-analytics'];
    const given = [...models, ...quiet, '--yes-always', '--no-pretty', ...words, 'hello.txt'];
    return execute(join(environment, 'bin', 'aider'), given, { cwd: work, env });
  };
  const first = await run('--message', 'Write forty-three');
  assert.equal(readFileSync(file, 'utf8'), 'forty-three\n', first.out + first.err);
  const second = await run('--restore-chat-history', '--message', 'Which text is it?');
  assert.match(second.out, /It says “forty-three”./, second.out + second.err);
  engines.assertPlayed();
  assert.match(JSON.stringify(engines.bodies.at(-1)), /Write forty-three/);
  const paid = before - (await balance(accountId));
  assert.equal(paid, engines.costNano(), 'the charge is the usage of the engine, to the nano');
  console.log(`${model}: ${engines.bodies.length} requests, ${Number(paid) / 1e9} USD`);
}

async function balance(accountId: string): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(accountId)).usdNano;
}
