import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  type AgentSettings,
  claudeEnvironment,
  codexLines,
  withClaudeSettings,
  withCodexSettings,
} from './agent-settings.ts';

const SETTINGS: AgentSettings = {
  origin: 'http://127.0.0.1:8402',
  secret: 'SVC_INFERENCE_KEY_x',
  model: 'atlas-24b',
  smallModel: 'atlas-3b',
  contextTokens: 65_536,
  title: 'Farebox',
};

const TABLE = `[model_providers.farebox]
name = "Farebox"
base_url = "http://127.0.0.1:8402/api/v1"
experimental_bearer_token = "SVC_INFERENCE_KEY_x"
wire_api = "responses"
`;

describe("Codex's config.toml", () => {
  test('`withCodexSettings` creates the file, and a second call does not change it', () => {
    const made = withCodexSettings(undefined, SETTINGS);
    assert.equal(
      made,
      `model = "atlas-24b"\nmodel_provider = "farebox"\nmodel_context_window = 65536\n\n${TABLE}`,
    );
    assert.equal(withCodexSettings(made, SETTINGS), made);
    assert.match(withCodexSettings('', { ...SETTINGS, contextTokens: undefined }), /^model = /);
  });

  test('`withCodexSettings` keeps other members and multi-line strings that look like tables', () => {
    const before = `# mine
model = "gpt-5" # the old one
approval_policy = "never"
notes = """
[not.a.table]
model = "not a member"
"""

[model_providers.farebox]
name = "old"
base_url = "http://old/v1"

[model_providers.farebox.http_headers]
x = "y"

[model_providers.other]
model = "of another"

[[rules]]
# last
name = "r"
`;
    assert.equal(
      withCodexSettings(before, SETTINGS),
      `# mine
model = "atlas-24b"
approval_policy = "never"
notes = """
[not.a.table]
model = "not a member"
"""

model_provider = "farebox"
model_context_window = 65536

[model_providers.other]
model = "of another"

[[rules]]
# last
name = "r"

${TABLE}`,
    );
  });

  test('`codexLines` contains a variable name instead of the key', () => {
    const lines = codexLines(SETTINGS);
    assert.match(lines, /^env_key = "FAREBOX_API_KEY"$/m);
    assert.doesNotMatch(lines, /SVC_INFERENCE_KEY_x/);
  });
});

describe("Claude Code's settings.json", () => {
  test('`withClaudeSettings` adds its variables and keeps all other settings', () => {
    const before = '{"theme":"dark","env":{"FOO":"1","ANTHROPIC_MODEL":"old"}}';
    assert.deepEqual(JSON.parse(withClaudeSettings(before, SETTINGS)), {
      theme: 'dark',
      env: { FOO: '1', ...claudeEnvironment(SETTINGS) },
    });
    assert.deepEqual(JSON.parse(withClaudeSettings(undefined, SETTINGS)), {
      env: claudeEnvironment(SETTINGS),
    });
    assert.equal(claudeEnvironment(SETTINGS)['ANTHROPIC_BASE_URL'], 'http://127.0.0.1:8402/api');
  });

  test('`withClaudeSettings` rejects text that is not a JSON object', () => {
    for (const text of ['{', '[]', '"x"', '// comment\n{}']) {
      assert.throws(() => withClaudeSettings(text, SETTINGS), /not a JSON object/);
    }
  });
});

test('docs/callers/agents.md contains the lines that the commands print', () => {
  const page = readFileSync(
    join(import.meta.dirname, '..', '..', 'docs', 'callers', 'agents.md'),
    'utf8',
  );
  const shown = { ...SETTINGS, secret: 'SVC_INFERENCE_KEY_…' };
  assert.ok(page.includes(codexLines(shown)));
  for (const [name, value] of Object.entries(claudeEnvironment(shown))) {
    assert.ok(page.includes(`export ${name}=${value}\n`), name);
  }
});
