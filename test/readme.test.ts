/**
 * The commands of the README, unchanged: the server starts, the response to its curl has the shown
 * form, and the other commands succeed.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { processResponses } from './app/process-responses.ts';
import { ROOT, readText } from './tidy/source-tree.ts';
import { endWithUs } from './support/end-with-us.ts';
import { until } from './support/until.ts';

const README = readText('README.md');
const BINARY = join(ROOT, 'bin', 'farebox.mjs');

function blocks(language: string): string[] {
  const fence = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, 'g');
  return [...README.matchAll(fence)].map(([, text]) => (text ?? '').trim());
}

function commands(): string[] {
  return blocks('sh').flatMap((block) => block.replaceAll('\\\n', ' ').split('\n'));
}

describe('the README', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-readme-'));
  const env = { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: '0' };
  const answers = processResponses();
  let server: ChildProcess;
  let url = '';
  let key = '';

  before(async () => {
    // The page assumes a machine without engines; only real servers download models.
    writeFileSync(
      join(folder, 'farebox.yaml'),
      'discovery: { enabled: false }\nembedded: { download: false }\n',
    );
    const started = endWithUs(
      spawn(process.execPath, [BINARY, 'serve'], {
        cwd: folder,
        env: { ...env, ...answers.env },
      }),
    );
    server = started;
    started.stderr.resume();
    let said = '';
    for await (const chunk of started.stdout) {
      said += String(chunk);
      url = /listens on (\S+)/.exec(said)?.[1] ?? '';
      key = /^ {4}(SVC_\S+)$/m.exec(said)?.[1] ?? '';
      if (said.includes('Next:')) break;
    }
    await answers.follow(url);
  });
  after(async () => {
    const ended = once(server, 'exit');
    server.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
    answers.assertFitting();
  });

  test('says what it is by line 3 and shows the first command by line 12', () => {
    const lines = README.split('\n');
    assert.match(lines.slice(0, 3).join(' '), /paid inference API/);
    assert.ok(lines.slice(0, 12).includes('npm ci && npm start'));
  });

  test('names scripts that the package has', () => {
    const { scripts } = JSON.parse(readText('package.json')) as { scripts: Record<string, string> };
    assert.ok(commands().includes('npm ci && npm test'));
    assert.equal(scripts['start'], 'node bin/farebox.mjs serve');
    assert.match(scripts['test'] ?? '', /^npm run types && .*node test\/run\.ts$/);
  });

  test('shows a curl whose response has the shown form', async () => {
    const curl = commands().find((command) => command.startsWith('curl')) ?? '';
    const shown = new URL(/https?:\S+/.exec(curl)?.[0] ?? '');
    const headers = [...curl.matchAll(/-H "([^:]+): ([^"]+)"/g)].map(
      ([, name = '', value = '']): [string, string] => [name, value.replace('$FAREBOX_KEY', key)],
    );
    const body = /-d '([^']+)'/.exec(curl)?.[1] ?? '';
    const target = url.replace(/\/api\/v1$/, '') + shown.pathname;
    let text = '';
    await until(async () => {
      const answer = await fetch(target, { method: 'POST', headers, body });
      text = await answer.text();
      // A model that has just been started responds with this error.
      return answer.status !== 503;
    }, 'that the model is there');
    const [expected = ''] = blocks('json');
    assert.deepEqual(missingFrom(JSON.parse(text), JSON.parse(expected), ''), [], text);
  });

  for (const command of commands().filter((line) => line.startsWith('npx farebox '))) {
    test(`runs "${command}"`, async () => {
      const argv = command.split(' ').slice(2);
      const ended = await new Promise<string>((resolve) => {
        const child = endWithUs(
          execFile(process.execPath, [BINARY, ...argv], { cwd: folder, env }),
        );
        let said = '';
        child.stdout?.on('data', (chunk: string) => void (said += chunk));
        child.stderr?.on('data', (chunk: string) => void (said += chunk));
        child.on('close', (code) => resolve(code === 0 ? '' : said));
      });
      assert.equal(ended, '');
    });
  }

  test('shows no command that this test does not know', () => {
    const known =
      /^(?:npm ci && npm (?:start|test)|curl .*|npx farebox .*|export FAREBOX_KEY=\S+)$/;
    assert.deepEqual(
      commands().filter((command) => !known.test(command)),
      [],
    );
  });
});

/** Paths that are shown but are missing in the response, or have another type there. */
function missingFrom(answer: unknown, shown: unknown, path: string): string[] {
  if (typeof shown !== typeof answer) return [path];
  if (typeof shown !== 'object' || shown === null) return [];
  return Object.entries(shown).flatMap(([key, value]) => {
    const inner = Object(answer) as Record<string, unknown>; // checked to be an object above
    return missingFrom(inner[key], value, `${path}/${key}`);
  });
}
