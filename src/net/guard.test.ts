/** The guard never connects to a rejected URL; a local server counts the connections. */
import assert from 'node:assert/strict';
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, test } from 'node:test';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { Fault, type FaultCode } from '../core/faults.ts';
import { Guard, type FetchOptions, type GuardOptions } from './guard.ts';
import { startProxy } from '../../test/support/connect-proxy.ts';
import { heapBytes } from '../../test/support/heap-bytes.ts';
import { until } from '../../test/support/until.ts';

const LOOPBACK = ['127.0.0.0/8', '::1/128'];
const OPTIONS: FetchOptions = { maxBytes: 100_000, timeoutMs: 5_000, maxRedirects: 5 };
const PATIENT: FetchOptions = { ...OPTIONS, timeoutMs: 120_000 };

interface Listening {
  readonly port: number;
  readonly url: string;
  readonly seen: { connections: number; paths: string[] };
}

const servers: Server[] = [];

async function listen(handler: RequestListener, host = '127.0.0.1'): Promise<Listening> {
  const seen = { connections: 0, paths: new Array<string>() };
  const server = createServer((request, response) => {
    seen.paths.push(request.url ?? '');
    handler(request, response);
  });
  server.on('connection', () => (seen.connections += 1));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const { port } = server.address() as AddressInfo;
  return { port, url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`, seen };
}

afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

async function refusal(
  url: string,
  options: GuardOptions,
  fetch: Partial<FetchOptions> = {},
): Promise<Fault> {
  const guard = new Guard(options);
  const error: unknown = await guard
    .fetch(url, { ...OPTIONS, ...fetch })
    .then(() => undefined)
    .catch((caught: unknown) => caught);
  assert.ok(error instanceof Fault, `${url} was not refused: ${String(error)}`);
  return error;
}

async function assertRefused(
  url: string,
  code: FaultCode,
  options: GuardOptions = {},
): Promise<void> {
  const fault = await refusal(url, options);
  assert.equal(fault.code, code, `${url}: ${fault.code} ${fault.message}`);
}

/** Resolves any name to the address in its first label, as `10-0-0-1.test.example`. */
const namesSpellAddresses: GuardOptions = {
  resolve: async (name) => [(name.split('.')[0] ?? '').replaceAll('-', '.').replaceAll('_', ':')],
};

describe('the guard rejects every form of an internal address', () => {
  const hosts = [
    '127.0.0.1',
    '127.1.2.3',
    '0.0.0.0',
    '0.1.2.3',
    '10.0.0.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '169.254.169.254',
    '100.64.0.1',
    '100.100.100.200',
    '192.0.0.1',
    '192.0.2.1',
    '198.18.0.1',
    '198.51.100.1',
    '203.0.113.1',
    '224.0.0.1',
    '239.255.255.255',
    '240.0.0.1',
    '255.255.255.255',
    '168.63.129.16',
    '192.88.99.1',
    '2130706433',
    '0x7f000001',
    '0177.0.0.1',
    '0x7f.1',
    '127.1',
    '017700000001',
    '127.0.0.01',
    '①②⑦.0.0.1',
    '127。0。0。1',
    '%31%32%37.0.0.1',
    '3627734734',
    '0xd83ad6ce',
    'localhost',
    'LOCALHOST',
    'localhost.',
    'a.localhost',
    '127.0.0.1.',
    'printer',
    'db.internal',
    'metadata.google.internal',
    'nas.local',
    'router.lan',
    'x.home.arpa',
    'abc.onion',
    '[::1]',
    '[::]',
    '[::ffff:127.0.0.1]',
    '[::ffff:8.8.8.8]',
    '[::ffff:7f00:1]',
    '[::127.0.0.1]',
    '[64:ff9b::7f00:1]',
    '[64:ff9b::808:808]',
    '[64:ff9b:1::1]',
    '[2002:7f00:1::]',
    '[2002:808:808::1]',
    '[2001:0:7f00:1::]',
    '[2001:db8::1]',
    '[fe80::1]',
    '[fec0::1]',
    '[fc00::1]',
    '[fd00:ec2::254]',
    '[ff02::1]',
    '[100::1]',
    '[3fff::1]',
    '[5f00::1]',
    '[2001:20::1]',
    '[2001:2::1]',
    '[::ffff:0:127.0.0.1]',
  ];
  test('written into the URL', async () => {
    const server = await listen((_request, response) => response.end('secret'));
    for (const host of hosts) {
      for (const scheme of ['http', 'https']) {
        await assertRefused(`${scheme}://${host}:${server.port}/`, 'UNSAFE_URL');
        await assertRefused(`${scheme}://${host}/`, 'UNSAFE_URL');
      }
    }
    assert.equal(server.seen.connections, 0);
  });

  test('behind a name, alone or among public addresses', async () => {
    const server = await listen((_request, response) => response.end('secret'));
    const inside = ['127-0-0-1', '10-0-0-1', '169-254-169-254', '0-0-0-0', '__1', '__ffff_7f00_1'];
    for (const label of [...inside, '64_ff9b__7f00_1', 'fe80__1', 'fd00__1', 'not-an-address']) {
      await assertRefused(
        `http://${label}.test.example:${server.port}/`,
        'UNSAFE_URL',
        namesSpellAddresses,
      );
    }
    const mixed: GuardOptions = { resolve: async () => ['93.184.216.34', '127.0.0.1'] };
    await assertRefused('http://mixed.example/', 'UNSAFE_URL', mixed);
    assert.equal(server.seen.connections, 0);
  });

  test('and a missing name gets the same error as an internal name', async () => {
    const gone = await refusal('http://gone.example/', {
      resolve: () => Promise.reject(new Error('ENOTFOUND')),
    });
    const inside = await refusal('http://inside.example/', { resolve: async () => ['10.0.0.1'] });
    assert.deepEqual([gone.code, gone.message], [inside.code, inside.message]);
    assert.doesNotMatch(inside.message, /10\./);
  });
});

test('the guard rejects other schemes, credentials, control characters, long URLs and other ports', async () => {
  const texts = [
    'ftp://example.com/',
    'file:///etc/passwd',
    'gopher://example.com/',
    'data:text/plain,x',
    'javascript:alert(1)',
    'http:example.com',
    'http:///example.com',
    '//example.com',
    'example.com',
    '',
    'http://',
    'http://user@example.com/',
    'http://user:pw@example.com/',
    'http://:pw@example.com/',
    'http://exa\tmple.com/',
    'http://example.com/\n',
    ' http://example.com/',
    'http://example.com/a b',
    `http://example.com/${'a'.repeat(9_000)}`,
    'http:\\\\example.com',
  ];
  for (const text of texts) await assertRefused(text, 'UNSAFE_URL');
  const publicName: GuardOptions = { resolve: async () => ['93.184.216.34'] };
  for (const port of [22, 25, 3306, 5432, 6379, 11211, 9200, 1]) {
    await assertRefused(`http://example.com:${port}/`, 'UNSAFE_URL', publicName);
  }
});

describe('with loopback allowed by the setting', () => {
  test('`fetch()` returns bytes, media type, charset and final URL', async () => {
    const server = await listen((_request, response) => {
      response.setHeader('content-type', 'Text/HTML; charset="ISO-8859-1"');
      response.end('<p>hello');
    });
    const page = await new Guard({ allow: LOOPBACK }).fetch(`${server.url}/page?q=1`, OPTIONS);
    assert.equal(page.bytes.toString(), '<p>hello');
    assert.equal(page.mediaType, 'text/html');
    assert.equal(page.charset, 'iso-8859-1');
    assert.equal(page.url, `${server.url}/page?q=1`);
  });

  test('each redirect is checked, in all its spellings', async () => {
    const inside = await listen((_request, response) => response.end('secret'), '127.0.0.2');
    const targets = [
      inside.url,
      `http://2130706434:${inside.port}/`,
      `http://0x7f000002:${inside.port}/`,
      `//127.0.0.2:${inside.port}/`,
      'file:///etc/passwd',
      `http://[::ffff:127.0.0.2]:${inside.port}/`,
      `http://user@127.0.0.1:${inside.port}/`,
      `http://rebound.example:${inside.port}/`,
      'http://[',
      'ftp://x.example/',
    ];
    const outside = await listen((request, response) => {
      response.writeHead(302, { location: targets[Number(request.url?.slice(1))] ?? '' }).end();
    });
    const options: GuardOptions = { allow: ['127.0.0.1/32'], resolve: async () => ['127.0.0.2'] };
    for (const index of targets.keys()) {
      await assertRefused(`${outside.url}/${index}`, 'UNSAFE_URL', options);
    }
    assert.equal(outside.seen.paths.length, targets.length);
    assert.equal(inside.seen.connections, 0);
  });

  test('redirects are followed up to the limit and not at all with 0', async () => {
    const server = await listen((request, response) => {
      const step = Number(request.url?.slice(1));
      if (step === 0) response.end('there');
      else response.writeHead(307, { location: `/${step - 1}` }).end('ignored');
    });
    const guard = new Guard({ allow: LOOPBACK });
    const page = await guard.fetch(`${server.url}/5`, OPTIONS);
    assert.equal(page.bytes.toString(), 'there');
    assert.equal(page.url, `${server.url}/0`);
    assert.equal((await refusal(`${server.url}/6`, { allow: LOOPBACK })).code, 'FETCH_FAILED');
    const none = await refusal(`${server.url}/1`, { allow: LOOPBACK }, { maxRedirects: 0 });
    assert.match(none.message, /redirects; give the final address/);
  });

  test('a name is resolved once, and the connection goes to the address that was checked', async () => {
    const checked = await listen((_request, response) => response.end('checked'));
    const inside = await listen((_request, response) => response.end('secret'), '127.0.0.2');
    let lookups = 0;
    const resolve = async (): Promise<string[]> =>
      lookups++ === 0 ? ['127.0.0.1'] : ['127.0.0.2'];
    const options: GuardOptions = { allow: ['127.0.0.1/32'], resolve };
    const guard = new Guard(options);
    const page = await guard.fetch(`http://rebind.example:${checked.port}/`, OPTIONS);
    assert.equal(page.bytes.toString(), 'checked');
    assert.equal(lookups, 1);
    await assert.rejects(guard.fetch(`http://rebind.example:${inside.port}/`, OPTIONS), {
      code: 'UNSAFE_URL',
    });
    assert.equal(inside.seen.connections, 0);
  });

  test('a second fetch resolves and connects again', async () => {
    const server = await listen((_request, response) => response.end('x'));
    const guard = new Guard({ allow: LOOPBACK });
    await guard.fetch(server.url, OPTIONS);
    await guard.fetch(server.url, OPTIONS);
    assert.equal(server.seen.connections, 2);
  });

  test('compressed bodies are decoded', async () => {
    const server = await listen((request, response) => {
      const coding = request.url?.slice(1) ?? '';
      response.setHeader('content-encoding', coding);
      response.end(coding === 'br' ? brotliCompressSync('packed') : gzipSync('packed'));
    });
    const guard = new Guard({ allow: LOOPBACK });
    for (const coding of ['br', 'gzip']) {
      const page = await guard.fetch(`${server.url}/${coding}`, OPTIONS);
      assert.equal(page.bytes.toString(), 'packed');
    }
    const stacked = await refusal(`${server.url}/gzip,%20gzip`, { allow: LOOPBACK });
    assert.equal(stacked.code, 'FETCH_FAILED');
  });

  test('bytes are limited: declared, endless, and after decompression', async () => {
    const bomb = gzipSync(Buffer.alloc(50_000_000));
    const server = await listen((request, response) => {
      if (request.url === '/declared')
        response.writeHead(200, { 'content-length': '200000000' }).flushHeaders();
      if (request.url === '/bomb')
        response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);
      if (request.url === '/endless') {
        const piece = Buffer.alloc(64 * 1024);
        const pump = (): void => {
          while (!response.destroyed && response.write(piece)) continue;
          if (!response.destroyed) response.once('drain', pump);
        };
        pump();
      }
    });
    for (const path of ['declared', 'bomb', 'endless']) {
      const fault = await refusal(`${server.url}/${path}`, { allow: LOOPBACK });
      assert.equal(fault.code, 'PAYLOAD_TOO_LARGE', path);
    }
  });

  test('a body of single bytes takes little more memory than its bytes', async () => {
    const pieces = 300_000;
    const server = await listen((_request, response) => {
      response.flushHeaders();
      response.socket?.write('1\r\na\r\n'.repeat(pieces));
    });
    const guard = new (class extends Guard {
      received = 0;
      override stream(...[url, sink, wanted]: Parameters<Guard['stream']>) {
        const counted = (chunk: Buffer) => {
          this.received += chunk.length;
          return sink(chunk);
        };
        return super.stream(url, counted, wanted);
      }
    })({ allow: LOOPBACK });
    const usedBytes = heapBytes();
    const abort = new AbortController();
    const wanted = { ...PATIENT, maxBytes: 2 * pieces, signal: abort.signal };
    const fetching = assert.rejects(guard.fetch(server.url, wanted));
    await until(() => guard.received === pieces, 'the body');
    const grownBytes = heapBytes() - usedBytes;
    abort.abort();
    await fetching;
    assert.ok(grownBytes < 20 * pieces, String(grownBytes));
  });

  test('a slow body ends at the time limit, and an abort ends at once with its reason', async () => {
    const server = await listen((_request, response) => {
      response.write('a');
    });
    const slow = await refusal(server.url, { allow: LOOPBACK }, { timeoutMs: 200 });
    assert.equal(slow.code, 'FETCH_FAILED');
    const abort = new AbortController();
    const guard = new Guard({ allow: LOOPBACK });
    const fetching = guard.stream(server.url, () => abort.abort(new Error('gone')), {
      ...OPTIONS,
      signal: abort.signal,
    });
    await assert.rejects(fetching, { message: 'gone' });
    const silent: GuardOptions = { resolve: () => new Promise(() => undefined) };
    assert.equal(
      (await refusal('http://slow.example/', silent, { timeoutMs: 50 })).code,
      'FETCH_FAILED',
    );
  });

  test('statuses, media types and dead hosts become FETCH_FAILED without internals', async () => {
    const server = await listen((request, response) => {
      if (request.url === '/404') response.writeHead(404).end('internal page');
      else response.writeHead(200, { 'content-type': 'text/html' }).end('x');
    });
    const missing = await refusal(`${server.url}/404`, { allow: LOOPBACK });
    assert.equal(missing.message, 'The URL responded with 404');
    const typed = await refusal(server.url, { allow: LOOPBACK }, { accept: ['image/*'] });
    assert.equal(typed.message, 'The URL gives text/html, expected image/*');
    const dead = await refusal('http://127.0.0.1:1/', { allow: LOOPBACK });
    assert.deepEqual([dead.code, dead.message], ['FETCH_FAILED', 'The URL could not be fetched']);
  });

  test('one caller cannot use all fetches or all memory', async () => {
    const held: ServerResponse[] = [];
    const { url } = await listen((_request, response) => {
      held.push(response);
      response.writeHead(200).flushHeaders();
    });
    const guard = new Guard({ allow: LOOPBACK, maxBufferedBytes: 120_000 });
    const fetch = (caller: string, from = url) =>
      guard.fetch(from, { ...PATIENT, caller }).then(
        () => 'fetched',
        (error: unknown) => (error instanceof Fault ? error.code : String(error)),
      );
    // One caller has three quarters of the allowed open fetches.
    const greedy = Array.from({ length: 96 }, () => fetch('greedy'));
    await until(() => held.length === 96);
    assert.equal(await fetch('greedy'), 'RATE_LIMIT_EXCEEDED');
    const others = [fetch('other'), guard.fetch(url, PATIENT)];
    await until(() => held.length === 98);
    // Running fetches continue, however many others have started.
    for (const response of held) response.end('x');
    assert.deepEqual([...new Set(await Promise.all([...greedy, others[0]]))], ['fetched']);
    await others[1];
    assert.equal(await fetch('greedy', (await listen((_, to) => void to.end('x'))).url), 'fetched');
    const sized = await listen((request, response) => {
      response.writeHead(200).write('x'.repeat(Number(request.url?.slice(1))));
      if (request.url === '/85000') held.push(response);
      else response.end();
    });
    const first = fetch('greedy', `${sized.url}/85000`);
    // Until its whole body has arrived, the same caller has capacity for more.
    await until(async () => (await fetch('greedy', `${sized.url}/10000`)) !== 'fetched');
    assert.equal(await fetch('greedy', `${sized.url}/10000`), 'RATE_LIMIT_EXCEEDED');
    assert.equal(await fetch('other', `${sized.url}/10000`), 'fetched');
    for (const response of held) response.end();
    assert.equal(await first, 'fetched');
  });

  test('messages of the server are sent while all fetches are in use', async () => {
    const held: ServerResponse[] = [];
    const slow = await listen((_request, response) => void held.push(response));
    const guard = new Guard({ allow: LOOPBACK });
    const fetches = Array.from({ length: 128 }, () => guard.fetch(slow.url, PATIENT));
    await until(() => held.length === 128);
    await assert.rejects(guard.fetch(slow.url, PATIENT), { code: 'SERVICE_UNAVAILABLE' });
    const { url } = await listen((_request, response) => void response.end());
    assert.equal(await guard.post(url, { headers: {}, body: 'x', timeoutMs: 5_000 }), 200);
    for (const response of held) response.end();
    await Promise.all(fetches);
  });

  test('the memory of all fetches is limited', async () => {
    const server = await listen((_request, response) => response.end(Buffer.alloc(50_000)));
    const fault = await refusal(server.url, { allow: LOOPBACK, maxBufferedBytes: 10_000 });
    assert.equal(fault.code, 'SERVICE_UNAVAILABLE');
  });
});

describe('post()', () => {
  const message = { headers: { 'x-mark': 'yes' }, body: '{"a":1}', timeoutMs: 2_000 };

  test('sends a body to a checked address and returns the status, also of a redirect', async () => {
    const bodies: string[] = [];
    const server = await listen((request, response) => {
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => (body += text));
      request.on('end', () => {
        bodies.push(`${request.method} ${String(request.headers['x-mark'])} ${body}`);
        response.writeHead(request.url === '/moved' ? 302 : 204, { location: '/' }).end();
      });
    });
    const guard = new Guard({ allow: LOOPBACK });
    assert.equal(await guard.post(`${server.url}/hook`, message), 204);
    assert.equal(await guard.post(`${server.url}/moved`, message), 302);
    assert.deepEqual(bodies, ['POST yes {"a":1}', 'POST yes {"a":1}']);
    assert.deepEqual(server.seen.paths, ['/hook', '/moved']);
  });

  test('connects to no internal address, and has a time limit', async () => {
    const server = await listen(() => undefined);
    await assert.rejects(new Guard().post(server.url, message), { code: 'UNSAFE_URL' });
    assert.equal(server.seen.connections, 0);
    const waiting = new Guard({ allow: LOOPBACK }).post(server.url, {
      ...message,
      timeoutMs: 50,
    });
    await assert.rejects(waiting, { code: 'FETCH_FAILED' });
  });
});

test('a guard for https only rejects http before any connection', async () => {
  const server = await listen((_request, response) => response.end());
  await assertRefused(server.url, 'UNSAFE_URL', { allow: LOOPBACK, isHttpsOnly: true });
  assert.equal(server.seen.connections, 0);
});

test('a proxy resolves the names, and every literal address and redirect is still checked', async (t) => {
  const server = await listen((request, response) => {
    if (request.url === '/moved') response.writeHead(302, { location: `${server.url}/secret` });
    response.end('content');
  });
  const { host, seen } = await startProxy(t, { 'files.example.com:80': server.port });
  const guard = { proxy: `http://${host}` };
  const file = await new Guard(guard).fetch('http://files.example.com/1', OPTIONS);
  assert.equal(file.bytes.toString(), 'content');
  await assertRefused('http://files.example.com/moved', 'UNSAFE_URL', guard);
  await assertRefused(`${server.url}/secret`, 'UNSAFE_URL', guard);
  await assertRefused('http://localhost/secret', 'UNSAFE_URL', guard);
  await assertRefused('http://files.example.com:25/', 'UNSAFE_URL', guard);
  assert.deepEqual(server.seen.paths, ['/1', '/moved']);
  assert.deepEqual(new Set(seen.map(({ target }) => target)), new Set(['files.example.com:80']));
});
