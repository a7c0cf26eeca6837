/** The same request for the command line, Python and TypeScript, ready to run with a key. */
import { API_URL, SERVICE } from './page-facts.ts';
import type { Sample } from './parts/code.tsx';

type Json = unknown;

/** Placeholder of a key; a real one is never in the page. */
const KEY = 'API_KEY';

export function chatSamples(body: Readonly<Record<string, Json>>): readonly Sample[] {
  return [
    { name: 'curl', text: curl('/chat/completions', body) },
    { name: 'Python', text: pythonChat(body) },
    { name: 'TypeScript', text: typescriptChat(body) },
  ];
}

/** Of any JSON route, by plain HTTP. */
export function plainSamples(path: string, body: Json): readonly Sample[] {
  const python = `import os, requests

answer = requests.post(
    "${API_URL}${path}",
    headers={"Authorization": f"Bearer {os.environ['${KEY}']}"},
    json=${pythonOf(body, 1)},
)
answer.raise_for_status()
print(answer.json())`;
  const typescript = `const answer = await fetch('${API_URL}${path}', {
  method: 'POST',
  headers: {
    authorization: \`Bearer \${process.env.${KEY}}\`,
    'content-type': 'application/json',
  },
  body: JSON.stringify(${scriptOf(body, 1)}),
});
console.log(await answer.json());`;
  return [
    { name: 'curl', text: curl(path, body) },
    { name: 'Python', text: python },
    { name: 'TypeScript', text: typescript },
  ];
}

/** Of a route that takes one file; `fields` are further texts of the form. */
export function formSamples(
  path: string,
  file: { readonly field: string; readonly name: string },
  output?: string,
): readonly Sample[] {
  const save = output === undefined ? '' : ` \\\n  -o ${output}`;
  const upload = shellQuote(`${file.field}=@${file.name}`);
  const curlText = `curl '${API_URL}${path}' \\\n  -H "Authorization: Bearer $${KEY}" \\\n  -F ${upload}${save}`;
  const name = JSON.stringify(file.name);
  const python = `import os, requests

with open(${name}, "rb") as file:
    answer = requests.post(
        "${API_URL}${path}",
        headers={"Authorization": f"Bearer {os.environ['${KEY}']}"},
        files={"${file.field}": file},
    )
answer.raise_for_status()
${output === undefined ? 'print(answer.json())' : `open("${output}", "wb").write(answer.content)`}`;
  const typescript = `import { openAsBlob } from 'node:fs';${output === undefined ? '' : `\nimport { writeFile } from 'node:fs/promises';`}

const form = new FormData();
form.set('${file.field}', await openAsBlob(${name}), ${name});
const answer = await fetch('${API_URL}${path}', {
  method: 'POST',
  headers: { authorization: \`Bearer \${process.env.${KEY}}\` },
  body: form,
});
${output === undefined ? 'console.log(await answer.json());' : `await writeFile('${output}', Buffer.from(await answer.arrayBuffer()));`}`;
  return [
    { name: 'curl', text: curlText },
    { name: 'Python', text: python },
    { name: 'TypeScript', text: typescript },
  ];
}

function curl(path: string, body: Json): string {
  const text = shellQuote(JSON.stringify(shortened(body), null, 2));
  const isStream = typeof body === 'object' && body !== null && 'stream' in body;
  return `curl ${isStream ? '-N ' : ''}'${API_URL}${path}' \\
  -H "Authorization: Bearer $${KEY}" \\
  -H 'Content-Type: application/json' \\
  -d ${text}`;
}

function shellQuote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Parameters that the SDKs do not know go beside the others. */
function split(body: Readonly<Record<string, Json>>): [Record<string, Json>, Record<string, Json>] {
  const own = `${SERVICE}_parameters`;
  const entries = Object.entries(body);
  const isOwn = ([name]: [string, Json]): boolean =>
    name === own || name === 'top_k' || name === 'min_p';
  return [
    Object.fromEntries(entries.filter((entry) => !isOwn(entry))),
    Object.fromEntries(entries.filter(isOwn)),
  ];
}

function pythonChat(body: Readonly<Record<string, Json>>): string {
  const [known, own] = split(body);
  const lines = Object.entries(known).map(([name, value]) => `    ${name}=${pythonOf(value, 1)},`);
  if (Object.keys(own).length > 0) lines.push(`    extra_body=${pythonOf(own, 1)},`);
  const tail =
    body['stream'] === true
      ? `for chunk in answer:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`
      : 'print(answer.choices[0].message.content)';
  return `import os
from openai import OpenAI

client = OpenAI(base_url="${API_URL}", api_key=os.environ["${KEY}"])
answer = client.chat.completions.create(
${lines.join('\n')}
)
${tail}`;
}

function typescriptChat(body: Readonly<Record<string, Json>>): string {
  const [known, own] = split(body);
  const lines = Object.entries(known).map(([name, value]) => `  ${name}: ${scriptOf(value, 1)},`);
  if (Object.keys(own).length > 0) {
    lines.push('  // @ts-expect-error beyond the types of the SDK');
    for (const [name, value] of Object.entries(own))
      lines.push(`  ${name}: ${scriptOf(value, 1)},`);
  }
  const tail =
    body['stream'] === true
      ? `for await (const chunk of answer) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? '');
}`
      : 'console.log(answer.choices[0]?.message.content);';
  return `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: '${API_URL}', apiKey: process.env.${KEY} });
const answer = await client.chat.completions.create({
${lines.join('\n')}
});
${tail}`;
}

function indented(text: string, level: number, width: number): string {
  return text.replaceAll('\n', `\n${' '.repeat(level * width)}`);
}

function scriptOf(value: Json, level: number): string {
  const text = JSON.stringify(shortened(value), null, 2);
  return indented(text.replaceAll(/^(\s*)"([A-Za-z_]\w*)":/gm, '$1$2:'), level, 2);
}

function pythonOf(value: Json, level: number): string {
  const json = JSON.stringify(shortened(value), null, 4);
  // Words of JSON stand alone after a colon, a comma or a bracket at the end of a line.
  const text = json.replaceAll(/(^\s*|: )(true|false|null)(,?)$/gm, (_all, before, word, comma) => {
    const words: Readonly<Record<string, string>> = { true: 'True', false: 'False', null: 'None' };
    return `${before}${words[word]}${comma}`;
  });
  return indented(text, level, 4);
}

const MOST_CHARS = 2_000;

/** Files as data URLs would bury the request. */
function shortened(value: Json): Json {
  if (typeof value === 'string') {
    return value.startsWith('data:') && value.length > MOST_CHARS
      ? `${value.slice(0, 60)}…`
      : value;
  }
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shortened(one)]));
}
