/**
 * Makes `dist/`: the same tree as `src/` in JavaScript, with the files that are not TypeScript
 * beside it, and the revision that the server reports. Node runs the source in a checkout; an
 * installed package, where Node strips no types, runs this.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const DIST = join(ROOT, 'dist');

rmSync(DIST, { recursive: true, force: true });
compile();
copyAssets(join(ROOT, 'src'));
writeFileSync(join(DIST, 'build.json'), `${JSON.stringify({ revision: revision() })}\n`);

function compile(): void {
  const typescript = createRequire(import.meta.url).resolve('typescript/package.json');
  const compiler = join(dirname(typescript), 'bin', 'tsc');
  const project = join(ROOT, 'tsconfig.build.json');
  execFileSync(process.execPath, [compiler, '-p', project], { cwd: ROOT, stdio: 'inherit' });
}

/** Data files keep their place, so that a URL relative to a module holds in both trees. */
function copyAssets(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) copyAssets(path);
    else if (!entry.name.endsWith('.ts')) {
      const target = join(DIST, relative(join(ROOT, 'src'), path));
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(path, target);
    }
  }
}

/** `YYYYMMDD.HHMMSS` in UTC: of `SOURCE_DATE_EPOCH`, else of the last commit, else of now. */
function revision(): string {
  const given = process.env['SOURCE_DATE_EPOCH'] ?? commitSeconds();
  const date = given === undefined ? new Date() : new Date(Number(given) * 1_000);
  const [day = '', time = ''] = date.toISOString().slice(0, 19).split('T');
  return `${day.replaceAll('-', '')}.${time.replaceAll(':', '')}`;
}

function commitSeconds(): string | undefined {
  try {
    const text = execFileSync('git', ['log', '-1', '--format=%ct'], {
      cwd: ROOT,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return text.trim() || undefined;
  } catch {
    // A tree without its history, such as an unpacked archive, is as new as its build.
    return undefined;
  }
}
