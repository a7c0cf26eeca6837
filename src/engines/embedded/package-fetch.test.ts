/** Uses a package registry on loopback. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { test } from 'node:test';
import { create } from 'tar';
import { seededIds } from '../../../test/support/seeded-ids.ts';
import { systemClock } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import { fetchPackages } from './package-fetch.ts';

test('a package that the registry does not have ends the fetch of the others', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-packages-'));
  const into = join(folder, 'engines');
  mkdirSync(join(folder, 'package'));
  writeFileSync(join(folder, 'package', 'index.js'), 'export {};\n');
  const tarball = await buffer(create({ cwd: folder, gzip: true }, ['package']));
  const integrity = `sha512-${createHash('sha512').update(tarball).digest('base64')}`;
  const seen: string[] = [];
  const registry = createServer((request, response) => {
    seen.push(request.url ?? '');
    if (request.url?.startsWith('/missing/') === true) response.writeHead(404).end();
    else void setTimeout(50).then(() => response.end(tarball));
  }).listen(0, '127.0.0.1');
  await once(registry, 'listening');
  const names = ['missing', ...Array.from({ length: 30 }, (_, at) => `package-${at}`)];
  try {
    const fetched = fetchPackages({
      set: {
        name: 'cutout',
        folder: 'cutout-0123456789abcdef',
        packages: names.map((name) => {
          return { name, version: '1.0.0', path: `node_modules/${name}`, integrity };
        }),
      },
      into,
      downloads: {
        registry: `http://127.0.0.1:${(registry.address() as AddressInfo).port}`,
        registryToken: undefined,
        modelMirror: undefined,
        modelHub: undefined,
        httpProxy: undefined,
        httpsProxy: undefined,
        noProxy: undefined,
      },
      clock: systemClock(),
      ids: seededIds(1),
      log: silentLog,
      signal: new AbortController().signal,
    });
    await assert.rejects(fetched, /did not return missing/);
    const requests = seen.length;
    await setTimeout(500);
    assert.deepEqual([seen.length, readdirSync(into)], [requests, []]);
  } finally {
    registry.closeAllConnections();
    registry.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
