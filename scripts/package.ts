/**
 * Builds the npm tarball: `dist/`, the assets and the lock files of the engines, with a `package.json`
 * without dependencies. `node scripts/package.ts [folder]` writes it to the folder, by default the root.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const CONTENTS = [
  'bin',
  'dist',
  'assets',
  ...globSync('engines/*/package-lock.json', { cwd: ROOT }),
  'LICENSE',
  'README.md',
  'CHANGELOG.md',
];
/** Fields of `package.json` that the tarball keeps; the others concern the checkout. */
const FIELDS = ['name', 'version', 'description', 'keywords', 'license', 'bin', 'type'];
/** The package runs on the installed Node; a checkout brings its own. */
const ENGINES = { node: '>=24.12' };

const target = resolve(process.argv[2] ?? ROOT);
await import('./build.ts');
const folder = mkdtempSync(join(tmpdir(), 'farebox-package-'));
try {
  for (const name of CONTENTS) cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  const given = Object.entries(
    // Our own file.
    JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<string, unknown>,
  );
  const fields = Object.fromEntries(given.filter(([name]) => FIELDS.includes(name)));
  const about = { ...fields, engines: ENGINES };
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(about, undefined, 2)}\n`);
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  execFileSync(npm, ['pack', folder, '--loglevel=error', '--pack-destination', target], {
    cwd: ROOT,
    stdio: 'inherit',
  });
} finally {
  rmSync(folder, { recursive: true, force: true });
}
