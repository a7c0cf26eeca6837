/** Prints the section of CHANGELOG.md about a release: `node scripts/release-notes.ts 1.2.0`. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [, , version = ''] = process.argv;
const text = readFileSync(join(import.meta.dirname, '..', 'CHANGELOG.md'), 'utf8');
const found = text.split(/^## /m).find((section) => section.startsWith(`[${version}] - `));
if (found === undefined)
  throw new Error(`CHANGELOG.md has no section "## [${version}] - YYYY-MM-DD"`);
process.stdout.write(`## ${found.trim()}\n`);
