/**
 * The installed package: packed, installed in an empty folder without a network, with every
 * operation of its OpenAPI document called. This finds processes, assets and modules that are
 * missing in the bundle. `FAREBOX_PACKAGE` is the path of an existing tarball.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, rmSync, statSync, cpSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { wrapFetchWithPayment } from '@x402/fetch';
import { ownEnginesFolder } from '../../src/engines/embedded/packages.ts';
import { type FareboxProcess, startFarebox } from '../e2e/farebox-process.ts';
import {
  type WalletFixture,
  evmClient,
  solanaClient,
  startWalletFixture,
} from '../e2e/wallet-fixture.ts';
import { portraitJpeg, toneWav, toySpeech } from '../media/clips.ts';
import { type Site, openSite } from '../media/site.ts';
import { type TestNode, startNode } from '../rpc/node.ts';
import { openEngine, sendJson } from '../support/loopback-engine.ts';
import { until } from '../support/until.ts';
import { pdfFile, pdfText } from '../support/test-files.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Maximum size without engines, so that growth of the package is noticed. */
const MAX_INSTALLED_BYTES = 60_000_000;
const ENGINE_WAIT_MS = 60_000;

describe('the installed package', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-installed-'));
  const program = join(folder, 'lib/node_modules/farebox');
  let fixture: WalletFixture;
  let node: TestNode;
  let site: Site;
  let farebox: FareboxProcess;
  const called = new Set<string>();

  before(async () => {
    const given = process.env['FAREBOX_PACKAGE'];
    if (given === undefined) run(process.execPath, [join(ROOT, 'scripts/package.ts'), folder]);
    const [tarball = ''] = given === undefined ? globSync(join(folder, '*.tgz')) : [given];
    run('npm', ['install', '--global', '--offline', '--prefix', folder, tarball]);
    fixture = await startWalletFixture();
    node = await startNode('0x1');
    site = await openSite();
    site.pages.set('/said.wav', toneWav('a b'));
    const server = join(folder, 'server');
    mkdirSync(join(server, 'data'), { recursive: true });
    // Installs a copy outside of the checkout, so that engines do not find its packages.
    cpSync(ownEnginesFolder(), join(server, 'data/engines'), { recursive: true });
    farebox = await startFarebox({
      binary: join(program, 'dist/main.js'),
      folder: server,
      uncheckedResponses: true,
      yaml: `
listen: { port: ${fixture.port} }
data: ./data
discovery: { enabled: false }
media: { ${await toySpeech(folder)} }
fetch: { allow: [127.0.0.0/8] }
embedded: { registry: 'http://127.0.0.1:9', modelMirror: 'http://127.0.0.1:9' }
rpc: { networks: { ethereum-mainnet: { upstreams: [{ url: '${node.url}' }] } }, publicNodes: false }
${fixture.yaml}`,
    });
  });
  after(async () => {
    assert.equal(await farebox.stop(), 0);
    await node.close();
    await fixture.stop();
    await site.close();
    rmSync(folder, { recursive: true, force: true });
  });

  async function call(method: string, path: string, body?: unknown): Promise<Response> {
    called.add(`${method} ${path.split('?')[0]}`);
    const isForm = body instanceof FormData;
    return await fetch(`${farebox.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${farebox.secret}`,
        ...(body === undefined || isForm ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: isForm ? body : JSON.stringify(body) }),
    });
  }

  async function ok(method: string, path: string, body?: unknown): Promise<Response> {
    const response = await call(method, path, body);
    if (response.status >= 300) assert.fail(`${method} ${path}: ${await response.text()}`);
    return response;
  }

  /** Ids of the models after every engine has started. */
  async function offered(wanted: readonly string[]): Promise<void> {
    const endMs = Date.now() + ENGINE_WAIT_MS;
    for (;;) {
      // The shape of our own response.
      const { data } = (await (await ok('GET', '/models?type=all')).json()) as {
        data: { id: string }[];
      };
      const missing = wanted.filter((id) => data.every((model) => model.id !== id));
      if (missing.length === 0) return;
      if (Date.now() > endMs) assert.fail(`${missing.join(', ')} missing: ${farebox.output()}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  test('is small, and has no dependencies', () => {
    const files = globSync('**/*', { cwd: program, exclude: ['node_modules/.cache/**'] });
    const bytes = files.reduce((sum, file) => sum + statSync(join(program, file)).size, 0);
    assert.ok(bytes < MAX_INSTALLED_BYTES, `${bytes} bytes are installed`);
    assert.deepEqual(globSync('lib/node_modules/*', { cwd: folder }), ['lib/node_modules/farebox']);
  });

  test('offers every engine of a checkout', async () => {
    await offered([
      'farebox-demo',
      'farebox-demo-embedding',
      'farebox-sentences',
      'farebox-rerank',
      'farebox-cutout',
      'farebox-still-to-video',
      'farebox-upscale',
      'farebox-transcription',
    ]);
  });

  test('the first start without a network responds to the printed command, until there is a model', async () => {
    const engine = await openEngine();
    const first = await startFarebox({
      binary: join(program, 'dist/main.js'),
      uncheckedResponses: true,
      yaml: `
listen: { port: 0 }
discovery: { urls: ['${engine.url}/v1'], everySeconds: 1 }
embedded: { registry: 'http://127.0.0.1:9', modelMirror: 'http://127.0.0.1:9' }
`,
    });
    try {
      const [log = '', banner = ''] = first.output().split('listens on');
      assert.ok(log.split('\n').filter((line) => line.startsWith('{')).length <= 10, log);
      // The engines of which the packages cannot be fetched do not delay the banner.
      assert.doesNotMatch(log, /did not start/);
      const printed = async (more: object = {}): Promise<string> => {
        const [, url = '', secret = ''] = /curl (\S+).*\n.*Bearer (\S+)"/.exec(banner) ?? [];
        const [, body = ''] = /-d '([^']+)'/.exec(banner) ?? [];
        const response = await fetch(url, {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: JSON.stringify({ ...(JSON.parse(body) as object), ...more }),
        });
        return `${response.status} ${await response.text()}`;
      };
      const response = await printed();
      assert.match(
        response,
        /^200 .*"model":"demo".*"content":"This is the demo model of Farebox\./,
      );
      assert.match(response, /"cost":\{"usd":0,/);
      const stream = await printed({ stream: true, max_tokens: 4, n: 2 });
      assert.match(stream, /"content":"demo "[^]*"finish_reason":"length"[^]*data: \[DONE\]\n\n$/);
      const list = async (): Promise<string> => (await fetch(`${first.url}/models`)).text();
      assert.match(await list(), /"id":"demo"/);
      const message = { role: 'assistant', content: 'Here' };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
      engine.answer = ({ path }, response) =>
        sendJson(
          response,
          200,
          path === '/v1/models'
            ? { object: 'list', data: [{ id: 'found', object: 'model', max_model_len: 4_096 }] }
            : { id: 'a', object: 'chat.completion', created: 1, model: 'found', choices, usage },
        );
      await until(async () => !(await list()).includes('"id":"demo"'), 'the other model', 250);
      assert.match(await printed(), /^200 .*"model":"found"/);
    } finally {
      await first.stop();
      await engine.close();
    }
  });

  test('chats, streams and reads a document', async () => {
    const message = (content: unknown) => ({
      model: 'farebox-demo',
      messages: [{ role: 'user', content }],
    });
    const answer = await (await ok('POST', '/chat/completions', message('Hello'))).text();
    assert.match(answer, /"content":"\w/);
    const stream = await ok('POST', '/chat/completions', { ...message('Hello'), stream: true });
    assert.match(await stream.text(), /data: \[DONE\]\n\n$/);
    const pdf = pdfFile([pdfText('The ferry leaves at nine')]).toString('base64');
    const file = { filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` };
    const parts = [
      { type: 'text', text: 'Sum it up' },
      { type: 'file', file },
    ];
    await ok('POST', '/chat/completions', message(parts));
  });

  test('embeds', async () => {
    const body = { model: 'farebox-demo-embedding', input: ['Hello', 'hello '.repeat(1_000)] };
    const response = await ok('POST', '/embeddings', body);
    assert.match(await response.text(), /"embedding":\[/);
  });

  test('removes a background', async () => {
    const image = (await portraitJpeg()).toString('base64');
    const response = await ok('POST', '/image/background-remove', { image });
    const png = Buffer.from(await response.arrayBuffer());
    assert.equal(png.toString('latin1', 1, 4), 'PNG');
  });

  test('generates a video', async () => {
    const image = (await portraitJpeg()).toString('base64');
    const order = {
      model: 'farebox-still-to-video',
      prompt: 'zoom in',
      image_url: `data:image/jpeg;base64,${image}`,
      duration: '1s',
      resolution: '360p',
      aspect_ratio: '16:9',
    };
    const { model, duration, resolution, aspect_ratio } = order;
    await ok('POST', '/video/quote', { model, duration, resolution, aspect_ratio });
    // The shape of our own response.
    const { queue_id } = (await (await ok('POST', '/video/queue', order)).json()) as {
      queue_id: string;
    };
    for (;;) {
      const response = await ok('POST', '/video/retrieve', { model, queue_id });
      if (response.headers.get('content-type')?.startsWith('video/') === true) break;
      const { status } = (await response.json()) as { status: string };
      assert.equal(status, 'PROCESSING');
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  });

  test('transcribes audio', async () => {
    const response = await ok('POST', '/video/transcriptions', { url: `${site.url}/said.wav` });
    assert.match(await response.text(), /"transcript":"a\s*b"/);
  });

  test('passes JSON-RPC on', async () => {
    const body = { jsonrpc: '2.0', id: 1, method: 'eth_blockNumber', params: [] };
    const response = await ok('POST', '/crypto/rpc/ethereum-mainnet', body);
    assert.match(await response.text(), /"result":"0x10"/);
  });

  test('accepts a payment on both chains', async () => {
    const base = evmClient(await fixture.evmWallet());
    const solana = solanaClient(await fixture.solanaWallet(), fixture.solana.rpcUrl);
    for (const client of [base, solana]) {
      const pay = wrapFetchWithPayment(fetch, client);
      const paid = await pay(`${farebox.url}/x402/top-up`, { method: 'POST' });
      assert.equal(paid.status, 200, await paid.text());
    }
  });

  test('serves its pages and figures', async () => {
    const origin = new URL(farebox.url).origin;
    for (const path of ['/docs', '/metrics', '/livez', '/readyz']) {
      const response = await fetch(origin + path);
      assert.equal(response.status, 200, path);
      assert.ok((await response.text()).length > 10, path);
    }
  });

  test('has every operation of its OpenAPI document', async () => {
    // The shape of our own document.
    const { paths } = (await (await ok('GET', '/openapi.json')).json()) as {
      paths: Record<string, Record<string, unknown>>;
    };
    const methods = new Set(['get', 'post', 'put', 'patch', 'delete']);
    for (const [path, item] of Object.entries(paths)) {
      for (const method of Object.keys(item)) {
        const name = `${method.toUpperCase()} ${path}`;
        if (!methods.has(method) || called.has(name) || PAGES.has(path)) continue;
        const filled = path.replaceAll(/\{\w+\}/g, 'none');
        const response = await call(
          method.toUpperCase(),
          filled,
          method === 'get' ? undefined : {},
        );
        // The stream of live events is endless.
        const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
        if (isStream === true) await response.body?.cancel();
        const said = isStream === true ? '' : await response.text();
        assert.ok(response.status < 500 || response.status === 503, `${name}: ${said}`);
        assert.ok(!/ERR_MODULE|Cannot find|ENOENT/.test(said), `${name}: ${said}`);
      }
    }
    const errors = farebox
      .output()
      .split('\n')
      .filter((line) => /ERR_MODULE_NOT_FOUND|Cannot find|"level":"error"/.test(line));
    assert.deepEqual(errors, []);
  });

  test('`farebox check` succeeds, with lazily loaded modules', async () => {
    const env = { ...process.env, FAREBOX_CONFIG: join(folder, 'server/farebox.yaml') };
    const check = await captured(join(program, 'bin/farebox.mjs'), ['check', '--json'], env);
    assert.match(check, /"ok": true/);
    const database = join(folder, 'postgres.yaml');
    writeFileSync(database, 'database: postgres://nobody@127.0.0.1:9/none\n');
    const refused = await captured(join(program, 'bin/farebox.mjs'), ['check', '--json'], {
      ...env,
      FAREBOX_CONFIG: database,
    });
    assert.match(refused, /PostgreSQL at 127\.0\.0\.1:9 does not accept connections/);
  });
});

const PAGES = new Set(['/livez', '/readyz', '/metrics', '/docs']);

function run(program: string, args: readonly string[]): void {
  execFileSync(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Output of a command, with any exit code. */
async function captured(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<string> {
  const child = spawn(process.execPath, [program, ...args], {
    env,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return await text(child.stdout);
}
