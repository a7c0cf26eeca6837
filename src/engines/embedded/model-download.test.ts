/** Uses a file server on loopback that can cut connections, corrupt data, redirect and reject. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, suite, test } from 'node:test';

import { type Clock, systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { silentLog } from '../../core/log.ts';
import { type DownloadOptions, type DownloadProgress, downloadFile } from './model-download.ts';
import { MODEL_LIBRARY, librarySpec } from './llama-models.ts';
import { hasModel, modelPath } from './model-files.ts';

const FILE = Buffer.from(
  Array.from({ length: 300_000 }, (_, index) => (index * 7 + index / 256) & 255),
);
const SHA256 = createHash('sha256').update(FILE).digest('hex');

type Handler = (request: IncomingMessage, response: ServerResponse, visit: number) => void;

suite('model files', () => {
  let folder: string;
  let server: Server;
  let url: string;
  let visits: { readonly path: string; readonly range: string | undefined }[];
  let handler: Handler;

  /** Time advances so fast that every chunk is reported; delays end at once and are recorded. */
  function quickClock(waits: number[] = []): Clock {
    return {
      ...systemClock(),
      monotonicMs: () => performance.now() * 100_000,
      sleep: async (ms) => void waits.push(ms),
    };
  }

  function serve(request: IncomingMessage, response: ServerResponse, limit = FILE.length): void {
    const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? '');
    const start = range === null ? 0 : Number(range[1]);
    const part = FILE.subarray(start);
    response.writeHead(range === null ? 200 : 206, {
      'content-length': part.length,
      etag: `"${SHA256}"`,
      ...(range === null
        ? {}
        : { 'content-range': `bytes ${start}-${FILE.length - 1}/${FILE.length}` }),
    });
    if (limit >= part.length) {
      response.end(part);
      return;
    }
    response.write(part.subarray(0, limit), () => response.destroy());
  }

  function file(extra: { url?: string; sha256?: string; sizeBytes?: number } = {}) {
    return { url: `${url}/model.gguf`, sha256: SHA256, sizeBytes: 1_000_000, ...extra };
  }

  function options(extra: Partial<DownloadOptions> = {}): DownloadOptions {
    return {
      file: file(),
      path: join(folder, 'models', 'model.gguf'),
      clock: quickClock(),
      log: silentLog,
      signal: new AbortController().signal,
      ...extra,
    };
  }

  async function refusal(extra: Partial<DownloadOptions> = {}): Promise<string> {
    const error = await downloadFile(options(extra)).then(
      () => assert.fail('The download succeeded'),
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof Fault, String(error));
    assert.ok(!existsSync(options().path), 'an invalid file does not get its name');
    return error.message;
  }

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'farebox-download-'));
    visits = [];
    handler = (request, response) => serve(request, response);
    server = createServer((request, response) => {
      visits.push({ path: request.url ?? '', range: request.headers.range });
      handler(request, response, visits.length);
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });

  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => {
      server.close(resolve);
    });
    rmSync(folder, { recursive: true, force: true });
  });

  suite('`downloadFile`', () => {
    test('it writes the file and reports its progress', async () => {
      const seen: DownloadProgress[] = [];
      await downloadFile(
        options({ clock: systemClock(), onProgress: (progress) => seen.push(progress) }),
      );
      assert.deepEqual(readFileSync(options().path), FILE);
      const last = seen.at(-1)!;
      assert.deepEqual(
        [last.fraction, last.bytesDone, last.bytesTotal],
        [1, FILE.length, FILE.length],
      );
      assert.ok(last.bytesPerSecond > 0);
      assert.ok(!existsSync(`${options().path}.part`));
    });

    test('it resumes after a cut connection', async () => {
      let first: ServerResponse | undefined;
      handler = (request, response, visit) => {
        if (visit > 1) return serve(request, response);
        first = response;
        response.writeHead(200, { 'content-length': FILE.length, etag: `"${SHA256}"` });
        response.write(FILE.subarray(0, 100_000));
      };
      const waits: number[] = [];
      const onProgress = (progress: DownloadProgress): void => {
        if (progress.bytesDone >= 50_000) first?.destroy();
      };
      await downloadFile(options({ clock: quickClock(waits), onProgress }));
      assert.deepEqual(readFileSync(options().path), FILE);
      assert.equal(visits.length, 2);
      assert.match(visits[1]!.range!, /^bytes=[1-9]\d*-$/);
      assert.equal(waits.length, 1);
    });

    test('it resumes after an abort', async () => {
      const stop = new AbortController();
      handler = (_request, response) => {
        response.writeHead(200, { 'content-length': FILE.length, etag: `"${SHA256}"` });
        response.write(FILE.subarray(0, 150_000));
      };
      await assert.rejects(
        downloadFile(
          options({
            signal: stop.signal,
            onProgress: (progress) => progress.bytesDone >= 100_000 && stop.abort(),
          }),
        ),
        { name: 'AbortError' },
      );
      const have = statSync(`${options().path}.part`).size;
      assert.ok(have >= 100_000);
      handler = (request, response) => serve(request, response);
      await downloadFile(options());
      assert.deepEqual(readFileSync(options().path), FILE);
      assert.equal(visits.at(-1)!.range, `bytes=${have}-`);
    });

    test('it can be aborted while it waits for a retry', async () => {
      handler = (_request, response) => response.writeHead(503).end();
      const stop = new AbortController();
      const stopped = downloadFile(
        options({
          clock: systemClock(),
          signal: stop.signal,
          onRetry: () => stop.abort(new Error('Enough')),
        }),
      );
      await assert.rejects(stopped, { message: 'Enough' });
    });

    test('it starts again if the file has changed', async () => {
      handler = (request, response, visit) => {
        if (visit === 1) {
          response.writeHead(200, { 'content-length': FILE.length, etag: '"old"' });
          response.write(Buffer.alloc(50_000), () => response.destroy());
        } else serve(request, response);
      };
      await downloadFile(options());
      assert.deepEqual(readFileSync(options().path), FILE);
      assert.equal(visits.at(-1)!.range, undefined);
    });

    test('it downloads everything again from a server without ranges', async () => {
      handler = (request, response, visit) => {
        delete request.headers.range;
        serve(request, response, visit === 1 ? 100_000 : FILE.length);
      };
      await downloadFile(options());
      assert.deepEqual(readFileSync(options().path), FILE);
    });

    test('it rejects a wrong checksum and deletes the part', async () => {
      const message = await refusal({ file: file({ sha256: 'a'.repeat(64) }) });
      assert.match(message, new RegExp(`SHA-256 is ${SHA256}, expected a{64}`));
      assert.equal(visits.length, 1, 'a retry would return the same bytes');
      assert.ok(!existsSync(`${options().path}.part`));
    });

    test('it resumes behind a redirect', async () => {
      let cut: ServerResponse | undefined;
      handler = (request, response, visit) => {
        if (request.url === '/model.gguf') {
          response.writeHead(302, { location: '/store/1' }).end();
        } else if (visit === 2) {
          cut = response;
          response.writeHead(200, { 'content-length': FILE.length });
          response.write(FILE.subarray(0, 100_000));
        } else serve(request, response);
      };
      const onProgress = (progress: DownloadProgress): void => {
        if (progress.bytesDone >= 50_000) cut?.destroy();
      };
      await downloadFile(options({ onProgress }));
      assert.deepEqual(readFileSync(options().path), FILE);
      assert.match(visits[3]!.range!, /^bytes=[1-9]\d*-$/);
    });

    test('it retries after 503 but not after 404', async () => {
      handler = (_request, response) => response.writeHead(404).end();
      assert.match(await refusal(), /status 404/);
      assert.equal(visits.length, 1);
      handler = (request, response, visit) => {
        if (visit < 4) response.writeHead(503).end();
        else serve(request, response);
      };
      const waits: number[] = [];
      await downloadFile(options({ clock: quickClock(waits) }));
      assert.deepEqual(waits, [1_000, 2_000]);
    });

    test('it fails after eight attempts without data', async () => {
      handler = (request) => request.socket.destroy();
      const waits: number[] = [];
      await refusal({ clock: quickClock(waits) });
      assert.equal(waits.length, 7);
      assert.ok(waits.every((ms) => ms <= 60_000));
    });

    test('it rejects a file that is too large, declared or not', async () => {
      assert.match(await refusal({ file: file({ sizeBytes: 1_000 }) }), /at most 1000/);
      handler = (_request, response) => {
        response.write(FILE);
        response.end(FILE);
      };
      assert.match(
        await refusal({ file: file({ sizeBytes: 200_000 }) }),
        /more than the expected 200000/,
      );
    });

    test('it follows a limited number of redirects', async () => {
      handler = (_request, response) => response.writeHead(302, { location: '/again' }).end();
      assert.match(await refusal(), /redirects/);
    });
  });

  suite('the model library', () => {
    test('each model has a pinned revision, size, checksum and a permissive license', () => {
      for (const model of MODEL_LIBRARY) {
        assert.match(
          model.file.url,
          /^https:\/\/huggingface\.co\/.+\/resolve\/[0-9a-f]{40}\/.+\.gguf$/,
        );
        assert.match(model.file.sha256, /^[0-9a-f]{64}$/);
        assert.ok(model.file.sizeBytes > 1_000_000);
        assert.equal(model.file.license, 'Apache-2.0');
        assert.ok(model.file.url.endsWith(model.file.name));
      }
    });

    test('the path of a model is in the data folder', async () => {
      const model = MODEL_LIBRARY.find(({ id }) => id === 'qwen3-0.6b')!;
      const path = join('/data', 'models', 'Qwen3-0.6B-Q8_0.gguf');
      assert.equal(modelPath('/data', model.file), path);
      const { isDemo, ...spec } = librarySpec('/data', model);
      assert.deepEqual([isDemo, spec.path, 'file' in spec], [false, path, false]);
      assert.equal(await hasModel(folder, model.file), false);
    });
  });
});
