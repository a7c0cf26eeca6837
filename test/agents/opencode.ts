/**
 * Unmodified OpenCode against a real server: sessions with files, commands, calls side by side and a
 * second prompt, over each protocol that it can speak, on engines of each protocol. The emulated
 * engines reject lost signatures, and each charge equals their usage. It is not part of the tests,
 * because it installs 0.4 GB.
 *
 * Run: node test/agents/opencode.ts [folder with an installed opencode-ai]
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startTestApp } from '../app/test-app.ts';
import { AgentEngines, type Model, MODELS } from './agent-engines.ts';
import { type Ended, execute, installed } from './agent-fixture.ts';

const NAME = 'opencode-ai';
const VERSION = '1.18.33';

/** Packages by which the agent calls a provider, each with the path that it requests. */
const PACKAGES = [
  ['@ai-sdk/openai-compatible', '/chat/completions'],
  ['@ai-sdk/openai', '/responses'],
  ['@ai-sdk/anthropic', '/messages'],
] as const;

const folder = mkdtempSync(join(tmpdir(), 'farebox-opencode-'));
const packages = await installed(`${NAME}@${VERSION}`, process.argv[2], folder);
const platform = `opencode-${process.platform}-${process.arch}`;
const program = join(packages, platform, 'bin', 'opencode');
const engines = await AgentEngines.start();
const farebox = await startTestApp({ yaml: engines.yaml });
/** The requests of the agent, such as `POST /messages 200`. */
let requests: string[] = [];
farebox.app.server.server.prependListener('request', (request, response) => {
  response.on('close', () => {
    const path = request.url?.replace(/\?.*/, '').replace('/api/v1', '') ?? '';
    requests.push(`${request.method} ${path} ${response.statusCode}`);
  });
});

try {
  for (const [npm, path] of PACKAGES) {
    for (const model of MODELS) await session(npm, path, model);
  }
  await farebox.audit();
} finally {
  await farebox.stop();
  await engines.stop();
  rmSync(folder, { recursive: true, force: true });
}

async function session(npm: string, path: string, model: Model): Promise<void> {
  const home = mkdtempSync(join(folder, 'home-'));
  const work = join(home, 'work');
  mkdirSync(work);
  const file = join(work, 'hello.txt');
  engines.play(
    [
      {
        text: 'I write.',
        calls: [{ name: 'write', input: { filePath: file, content: 'forty-two\n' } }],
      },
      {
        calls: [
          { name: 'bash', input: { command: 'cat hello.txt; seq 1 200', description: 'Shows it' } },
          { name: 'read', input: { filePath: file } },
        ],
      },
      { text: 'The file says “forty-two” – 😀.' },
      {
        calls: [
          {
            name: 'edit',
            input: { filePath: file, oldString: 'forty-two', newString: 'forty-three' },
          },
        ],
      },
      { text: 'Now it says forty-three.' },
    ],
    { hasTools: true },
  );
  requests = [];
  const { secret, accountId } = await farebox.account('50');
  const before = await balance(accountId);
  const run = (...words: string[]): Promise<Ended> => {
    const config = {
      model: `farebox/${model}`,
      small_model: `farebox/${model}`,
      autoupdate: false,
      share: 'disabled',
      provider: {
        farebox: {
          npm,
          name: 'Farebox',
          options: { baseURL: farebox.url, apiKey: secret },
          models: {
            [model]: {
              tool_call: true,
              reasoning: true,
              limit: { context: 200_000, output: 32_000 },
            },
          },
        },
      },
    };
    const env = {
      HOME: home,
      PATH: process.env['PATH'],
      NO_PROXY: '127.0.0.1',
      OPENCODE_CONFIG_CONTENT: JSON.stringify(config),
      OPENCODE_DISABLE_MODELS_FETCH: '1',
      OPENCODE_DISABLE_AUTOUPDATE: '1',
      OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
    };
    return execute(program, ['run', '--pure', '--auto', '--format', 'json', ...words], {
      cwd: work,
      env,
    });
  };
  const first = await run('Write the file');
  assert.match(first.out, /The file says “forty-two” – 😀\./, first.out + first.err);
  assert.equal(readFileSync(file, 'utf8'), 'forty-two\n');
  const second = await run('--continue', 'Change it');
  assert.match(second.out, /Now it says forty-three\./, second.out + second.err);
  assert.equal(readFileSync(file, 'utf8'), 'forty-three\n');
  engines.assertPlayed();
  assert.ok(
    requests.every((one) => one === `POST ${path} 200`),
    requests.join(),
  );
  const paid = before - (await balance(accountId));
  assert.equal(paid, engines.costNano(), 'the charge is the usage of the engine, to the nano');
  // The Responses protocol has no marks for a prompt cache.
  if (model === 'claude-opus' && path !== '/responses') {
    const [, share] = engines.readShares();
    assert.ok(Number(share) >= 0.9, `turn 2 reads ${share} of its prompt from the cache`);
  }
  console.log(`${npm} on ${model}: ${requests.length} requests, ${Number(paid) / 1e9} USD`);
}

async function balance(accountId: string): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(accountId)).usdNano;
}
