/**
 * Installs the packages that only files in `test/` import, mostly foreign clients: `node
 * test/install.ts`. Their own manifest and lock file keep them out of the installation of the
 * server. Does nothing if the packages match the lock file.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const TIMEOUT_MS = 600_000;
/** Written last, so that an interrupted installation is not complete. */
const STAMP = join(import.meta.dirname, 'node_modules/.farebox-lock');

/** Returns an error message if the installation failed, otherwise nothing. */
export function installTestPackages(): string | undefined {
  const lock = createHash('sha256')
    .update(readFileSync(join(import.meta.dirname, 'package-lock.json')))
    .digest('hex');
  if (installed() === lock) return undefined;
  console.log('Packages of the tests: installing test/package-lock.json');
  const startedMs = Date.now();
  const { command, args } = npm();
  const { status, error } = spawnSync(command, [...args, 'ci', '--loglevel=error'], {
    cwd: import.meta.dirname,
    stdio: 'inherit',
    timeout: TIMEOUT_MS,
    // On Windows npm is a script.
    shell: process.platform === 'win32' && args.length === 0,
  });
  if (status !== 0) {
    const why = error === undefined ? `npm ended with ${status}` : error.message;
    return (
      `The packages of the tests are not installed (${why}). They come from the npm registry: ` +
      'with a network, or with a filled npm cache, run `node test/install.ts` again'
    );
  }
  writeFileSync(STAMP, lock);
  console.log(`Packages of the tests: done in ${Math.round((Date.now() - startedMs) / 1_000)} s`);
  return undefined;
}

function installed(): string | undefined {
  try {
    return readFileSync(STAMP, 'utf8');
  } catch {
    // No file, so nothing is installed.
    return undefined;
  }
}

/** The npm that runs this script, or the one in `PATH`. */
function npm(): { readonly command: string; readonly args: readonly string[] } {
  const running = process.env['npm_execpath'];
  if (running === undefined || !/npm-cli\.[cm]?js$/.test(running)) {
    return { command: 'npm', args: [] };
  }
  return { command: process.execPath, args: [running] };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const problem = installTestPackages();
  if (problem !== undefined) {
    console.error(problem);
    process.exitCode = 1;
  }
}
