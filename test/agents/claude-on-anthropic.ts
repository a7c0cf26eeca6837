/**
 * Unmodified Claude Code on an engine of Anthropic's Messages API: a session of twenty requests. Its
 * requests arrive as it sent them, its prompts are read from the cache, and the charge equals the
 * usage of the engine. It is not part of the tests, because it installs 0.4 GB.
 *
 * Run: node test/agents/claude-on-anthropic.ts [folder with an installed @anthropic-ai/claude-code]
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { claudeEnvironment } from '../../src/cli/agent-settings.ts';
import { startTestApp } from '../app/test-app.ts';
import { AnthropicEngine, type Script, type Usage } from '../support/anthropic-engine.ts';
import { execute, installed } from './agent-fixture.ts';

const NAME = '@anthropic-ai/claude-code';
const VERSION = '2.1.330';
const REQUESTS = 20;
/** USD for a million tokens. */
const PRICE = { input: 5, output: 25, cacheInput: 0.5, cacheWrite: 6.25, cacheWrite1h: 10 };

const folder = mkdtempSync(join(tmpdir(), 'farebox-claude-'));
const packages = await installed(`${NAME}@${VERSION}`, process.argv[2], folder);
const engine = await AnthropicEngine.start();
const direct = await AnthropicEngine.start();
const farebox = await startTestApp({
  yaml: `
engines: { claude: { protocol: anthropic, url: "${engine.url}", apiKey: sk-test, addedPromptTokens: 2000 } }
models:
  - id: claude-opus
    type: text
    context: 200000
    maxCompletionTokens: 32000
    capabilities: [functionCalling, reasoning, reasoningEffort, responseSchema, vision, multipleImages]
    price: ${JSON.stringify(PRICE)}
    replicas: [{ engine: claude, model: claude-opus }]
`,
});
/** Bodies of the agent's requests, as it sent them. */
const sent: string[] = [];
const recorder = createServer((incoming, response) => {
  const chunks: Buffer[] = [];
  incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
  incoming.on('end', () => {
    const body = Buffer.concat(chunks);
    if (/^\/api\/v1\/messages(?:\?|$)/.test(incoming.url ?? '')) sent.push(body.toString());
    const { hostname, port } = new URL(farebox.url);
    const { method, url: path, headers } = incoming;
    const outgoing = httpRequest({ hostname, port, method, path, headers }, (received) => {
      response.writeHead(received.statusCode ?? 502, received.headers);
      received.pipe(response);
    });
    outgoing.end(body);
  });
});
recorder.listen(0, '127.0.0.1');
await once(recorder, 'listening');

try {
  await session();
} finally {
  recorder.closeAllConnections();
  recorder.close();
  await farebox.stop();
  await engine.stop();
  await direct.stop();
  rmSync(folder, { recursive: true, force: true });
}

async function session(): Promise<void> {
  let turn = 0;
  const step: Script = ({ tools }) => {
    if (tools === undefined || tools.length === 0) {
      return { content: [{ type: 'text', text: 'A title' }] };
    }
    turn += 1;
    const thinking = { type: 'thinking', thinking: `Step ${turn} "of" ${REQUESTS}` };
    if (turn === REQUESTS) return { content: [thinking, { type: 'text', text: 'All is done.' }] };
    const input = { command: `echo step ${turn}; seq 1 400`, description: 'Count' };
    const id = `toolu_${String(turn).padStart(24, '0')}`;
    return { content: [thinking, { type: 'tool_use', id, name: 'Bash', input }] };
  };
  for (let at = 0; at < 4 * REQUESTS; at += 1) engine.script.push(step);
  const { secret, accountId } = await farebox.account('50');
  const before = await balance(accountId);
  const { port } = recorder.address() as AddressInfo; // a listening TCP server has one
  const settings = {
    origin: `http://127.0.0.1:${port}`,
    secret,
    model: 'claude-opus',
    smallModel: 'claude-opus',
    contextTokens: 200_000,
    title: 'Farebox',
  };
  const work = join(folder, 'work');
  mkdirSync(work);
  const env = {
    HOME: mkdtempSync(join(folder, 'home-')),
    PATH: process.env['PATH'],
    NO_PROXY: '127.0.0.1',
    DISABLE_AUTOUPDATER: '1',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    ...claudeEnvironment(settings),
  };
  const program = join(packages, `${NAME}-${process.platform}-${process.arch}`, 'claude');
  const words = ['-p', 'Do the task', '--output-format', 'json', '--allowedTools', 'Bash'];
  const ran = await execute(program, words, { cwd: work, env });
  assert.equal(turn, REQUESTS, ran.out + ran.err);
  assert.match(ran.out, /All is done\./);

  const received = engine.seen.map(({ text }) => text);
  assert.deepEqual(received, sent, 'the model has the same name, so every byte is equal');
  assert.ok(
    sent.every((text) => text.includes('"cache_control"')),
    'there are marks',
  );
  const failed = engine.seen.filter(({ usage }) => usage === undefined);
  assert.deepEqual(failed, [], 'every signature is valid');
  const thinking = engine.seen.at(-1)?.text.match(/"type":"thinking"/g)?.length ?? 0;
  assert.ok(thinking >= REQUESTS - 1, `${thinking} thinking blocks were sent back`);

  const usages = engine.seen.flatMap(({ usage }) => usage ?? []);
  const conversation = engine.seen.filter(({ body }) => (body.tools?.length ?? 0) > 0);
  const shares = conversation.flatMap(({ usage }) => (usage === undefined ? [] : readShare(usage)));
  assert.ok((shares[1] ?? 0) >= 0.9, `turn 2 reads ${shares[1]} of its prompt from the cache`);
  const paid = Number(before - (await balance(accountId)));
  const billed = usages.reduce((sum, usage) => sum + nanoOf(usage), 0);
  assert.equal(paid, billed, 'the charge is the usage of the engine, to the nano');
  await farebox.audit();

  // The same requests without Farebox.
  direct.script.push(
    ...Array.from({ length: sent.length }, (): Script => (_body, seen) => {
      const at = direct.seen.indexOf(seen);
      const outputTokens = usages[at]?.output_tokens ?? 0;
      return { content: [{ type: 'text', text: 'x' }], outputTokens };
    }),
  );
  for (const body of sent) {
    const headers = { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' };
    const answered = await fetch(`${direct.url}/messages`, { method: 'POST', headers, body });
    await answered.arrayBuffer();
  }
  const alone = direct.seen.reduce((sum, { usage }) => sum + (usage ? nanoOf(usage) : 0), 0);
  const ratio = paid / alone;
  assert.ok(ratio <= 1.05, `the session costs ${ratio} of its direct cost`);
  console.log(
    `${sent.length} requests, ${thinking} signed blocks in the last one\n` +
      `read from the cache: turn 2 ${percent(shares[1])}, last turn ${percent(shares.at(-1))}\n` +
      `${paid / 1e9} USD, direct ${alone / 1e9} USD, ratio ${ratio.toFixed(4)}`,
  );
}

function readShare(usage: Usage): number {
  const { input_tokens, cache_read_input_tokens, cache_creation_input_tokens } = usage;
  const prompt = input_tokens + cache_read_input_tokens + cache_creation_input_tokens;
  return cache_read_input_tokens / prompt;
}

function nanoOf({ cache_creation: written, ...usage }: Usage): number {
  return Math.round(
    1_000 *
      (usage.input_tokens * PRICE.input +
        usage.cache_read_input_tokens * PRICE.cacheInput +
        written.ephemeral_5m_input_tokens * PRICE.cacheWrite +
        written.ephemeral_1h_input_tokens * PRICE.cacheWrite1h +
        usage.output_tokens * PRICE.output),
  );
}

async function balance(accountId: string): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(accountId)).usdNano;
}

function percent(share: number | undefined): string {
  return `${(100 * (share ?? 0)).toFixed(1)} %`;
}
