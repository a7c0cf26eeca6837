/**
 * Writes a POST request as code for curl, Python and TypeScript. Routes of the OpenAI API use the
 * OpenAI SDK, others plain HTTP. The code reads the API key from the environment.
 */
import { API_URL, SERVICE } from './page-facts.ts';

export interface Sample {
  readonly name: string;
  readonly text: string;
}

/** Environment variables that samples read. */
type Credential = 'API_KEY' | 'ADMIN_KEY';

interface FormField {
  readonly name: string;
  readonly value: string;
  /** The value is the name of a file. */
  readonly isFile: boolean;
}

type SampleBody =
  | { readonly kind: 'json'; readonly value: unknown }
  | { readonly kind: 'form'; readonly fields: readonly FormField[] };

interface SampleRequest {
  readonly path: string;
  readonly credential: Credential;
  readonly body: SampleBody;
  /** File name for a binary response; without it, the response is JSON. */
  readonly output?: string | undefined;
}

interface SdkMethod {
  /** Below the client, in the spelling of Python. */
  readonly call: string;
  /** The part of `response` that the sample prints, in Python and in TypeScript. */
  readonly shows: readonly [python: string, typescript: string];
}

/** Methods of the OpenAI SDKs by path. */
const OPENAI: Readonly<Record<string, SdkMethod>> = {
  '/chat/completions': {
    call: 'chat.completions.create',
    shows: ['response.choices[0].message.content', 'response.choices[0]?.message.content'],
  },
  '/embeddings': {
    call: 'embeddings.create',
    shows: ['response.data[0].embedding', 'response.data[0]?.embedding'],
  },
  '/images/generations': {
    call: 'images.generate',
    shows: ['response.data[0].url', 'response.data?.[0]?.url'],
  },
  '/audio/speech': { call: 'audio.speech.create', shows: ['response', 'response'] },
  '/audio/transcriptions': {
    call: 'audio.transcriptions.create',
    shows: ['response.text', 'response.text'],
  },
  '/batches': { call: 'batches.create', shows: ['response.id', 'response.id'] },
};

export function chatSamples(body: Readonly<Record<string, unknown>>): readonly Sample[] {
  return jsonSamples('/chat/completions', body);
}

/** Samples of a route that takes JSON. `path`: below the base path. `output`: as in `formSamples`. */
export function jsonSamples(
  path: string,
  body: Readonly<Record<string, unknown>>,
  credential: Credential = 'API_KEY',
  output?: string,
): readonly Sample[] {
  return samplesOf({ path, credential, body: { kind: 'json', value: shortened(body) }, output });
}

/** Samples of a route that takes one file. `output`: the name of the file in the response. */
export function formSamples(
  path: string,
  file: { readonly field: string; readonly name: string },
  output?: string,
): readonly Sample[] {
  const fields = [{ name: file.field, value: file.name, isFile: true }];
  // The SDKs require the model, the route does not.
  if (path in OPENAI) fields.push({ name: 'model', value: 'default', isFile: false });
  return samplesOf({ path, credential: 'API_KEY', body: { kind: 'form', fields }, output });
}

function samplesOf(request: SampleRequest): readonly Sample[] {
  const method = OPENAI[request.path];
  return [
    { name: 'curl', text: curlOf(request) },
    {
      name: 'Python',
      text: method === undefined ? pythonRequest(request) : pythonSdk(request, method),
    },
    {
      name: 'TypeScript',
      text: method === undefined ? scriptRequest(request) : scriptSdk(request, method),
    },
  ];
}

const MAX_DATA_URL_CHARS = 2_000;

/** Shortens long data URLs, which would hide the rest of the request. */
function shortened(value: unknown): unknown {
  if (typeof value === 'string') {
    return value.startsWith('data:') && value.length > MAX_DATA_URL_CHARS
      ? `${value.slice(0, 60)}…`
      : value;
  }
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shortened(one)]));
}

/** Longest JSON on one line with `-d`, in characters. */
const SHORT_BODY = 44;

function curlOf({ path, credential, body, output }: SampleRequest): string {
  const lines = [`curl ${isStream(body) ? '-N ' : ''}${shellQuote(API_URL + path)}`];
  lines.push(`-H "Authorization: Bearer $${credential}"`);
  if (body.kind === 'json') {
    lines.push("-H 'Content-Type: application/json'", `-d ${shellQuote(curlJson(body.value))}`);
  }
  for (const { name, value, isFile } of body.kind === 'form' ? body.fields : []) {
    lines.push(`-F ${shellQuote(`${name}=${isFile ? '@' : ''}${value}`)}`);
  }
  if (output !== undefined) lines.push(`-o ${output}`);
  return lines.join(' \\\n  ');
}

function curlJson(value: unknown): string {
  const short = JSON.stringify(value) ?? '';
  if (short.length <= SHORT_BODY) return short;
  return JSON.stringify(value, null, 2).replaceAll('\n', '\n  ');
}

function shellQuote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function isStream(body: SampleBody): boolean {
  return body.kind === 'json' && (body.value as { stream?: unknown } | null)?.stream === true; // any JSON
}

function pythonRequest({ path, credential, body, output }: SampleRequest): string {
  const args = [PYTHON.string(API_URL + path)];
  args.push(`headers={"Authorization": f"Bearer {os.environ['${credential}']}"}`);
  if (body.kind === 'json') args.push(`json=${literal(body.value, PYTHON, 1)}`);
  else args.push(...pythonForm(body.fields));
  const tail =
    output === undefined
      ? 'print(response.json())'
      : `with open(${PYTHON.string(output)}, "wb") as file:\n    file.write(response.content)`;
  return `import os\nimport requests\n\nresponse = requests.post(${spread(args, '    ')})\nresponse.raise_for_status()\n${tail}`;
}

function pythonForm(fields: readonly FormField[]): string[] {
  const files = fields.filter((field) => field.isFile);
  const texts = fields.filter((field) => !field.isFile);
  const open = files.map(({ name, value }) => {
    return `${PYTHON.string(name)}: open(${PYTHON.string(value)}, "rb")`;
  });
  const data = Object.fromEntries(texts.map(({ name, value }) => [name, value]));
  const args = open.length > 0 ? [`files={${open.join(', ')}}`] : [];
  return texts.length > 0 ? [...args, `data=${literal(data, PYTHON, 1)}`] : args;
}

function pythonSdk({ body, output }: SampleRequest, method: SdkMethod): string {
  const call = `client.${method.call}(${spread(pythonArguments(body), '    ')})`;
  const key = 'api_key=os.environ["API_KEY"]';
  const head = `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${PYTHON.string(API_URL)}, ${key})\n`;
  const tail = isStream(body)
    ? 'for chunk in response:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)'
    : output === undefined
      ? `print(${method.shows[0]})`
      : `response.write_to_file(${PYTHON.string(output)})`;
  return `${head}response = ${call}\n${tail}`;
}

function pythonArguments(body: SampleBody): string[] {
  if (body.kind === 'form') {
    return body.fields.map(({ name, value, isFile }) => {
      const text = PYTHON.string(value);
      return `${name}=${isFile ? `open(${text}, "rb")` : text}`;
    });
  }
  const [known, beyond] = members(body);
  const args = known.map(([name, value]) => `${name}=${literal(value, PYTHON, 1)}`);
  if (beyond.length === 0) return args;
  return [...args, `extra_body=${literal(Object.fromEntries(beyond), PYTHON, 1)}`];
}

function scriptRequest({ path, credential, body, output }: SampleRequest): string {
  const headers = [`authorization: \`Bearer \${process.env.${credential}}\``];
  if (body.kind === 'json') headers.push("'content-type': 'application/json'");
  const options = [
    `method: 'POST'`,
    `headers: {${spread(headers, '    ', '  ')}}`,
    body.kind === 'json' ? `body: JSON.stringify(${literal(body.value, SCRIPT, 1)})` : 'body: form',
  ];
  const imports = scriptImports(body, output, "import { openAsBlob } from 'node:fs';");
  const form = body.kind === 'form' ? `${scriptForm(body.fields)}\n` : '';
  const tail = scriptTail(output, 'await response.json()');
  const head = imports === '' ? '' : `${imports}\n`;
  return `${head}${form}const response = await fetch(${SCRIPT.string(API_URL + path)}, {${spread(options, '  ')}});\nif (!response.ok) throw new Error(await response.text());\n${tail}`;
}

/** Import lines for files that the code reads and writes. */
function scriptImports(body: SampleBody, output: string | undefined, reader: string): string {
  const reads = body.kind === 'form' && body.fields.some(({ isFile }) => isFile);
  const writer = "import { writeFile } from 'node:fs/promises';";
  return `${reads ? `${reader}\n` : ''}${output === undefined ? '' : `${writer}\n`}`;
}

function scriptTail(output: string | undefined, shown: string): string {
  if (output === undefined) return `console.log(${shown});`;
  return `await writeFile('${output}', Buffer.from(await response.arrayBuffer()));`;
}

function scriptForm(fields: readonly FormField[]): string {
  const lines = fields.map(({ name, value, isFile }) => {
    const [field, text] = [SCRIPT.string(name), SCRIPT.string(value)];
    return isFile
      ? `form.set(${field}, await openAsBlob(${text}), ${text});`
      : `form.set(${field}, ${text});`;
  });
  return ['const form = new FormData();', ...lines].join('\n');
}

function scriptSdk({ body, output }: SampleRequest, method: SdkMethod): string {
  const imports = scriptImports(body, output, "import { createReadStream } from 'node:fs';");
  const head = `${imports}import OpenAI from 'openai';\n\nconst client = new OpenAI({\n  baseURL: ${SCRIPT.string(API_URL)},\n  apiKey: process.env.API_KEY,\n});\n`;
  const call = `client.${method.call}({${spread(scriptArguments(body), '  ')}})`;
  const tail = isStream(body)
    ? "for await (const chunk of response) {\n  process.stdout.write(chunk.choices[0]?.delta.content ?? '');\n}"
    : scriptTail(output, method.shows[1]);
  return `${head}const response = await ${call};\n${tail}`;
}

function scriptArguments(body: SampleBody): string[] {
  if (body.kind === 'form') {
    return body.fields.map(({ name, value, isFile }) => {
      const text = SCRIPT.string(value);
      return `${name}: ${isFile ? `createReadStream(${text})` : text}`;
    });
  }
  const [known, beyond] = members(body);
  const written = ([name, value]: [string, unknown]): string =>
    `${SCRIPT.key(name)}: ${literal(value, SCRIPT, 1)}`;
  if (beyond.length === 0) return known.map(written);
  const [first = '', ...rest] = beyond.map(written);
  const marked = `// @ts-expect-error not in the types of the SDK\n  ${first}`;
  return [...known.map(written), marked, ...rest];
}

type Members = [string, unknown][];

/** Splits the members of a JSON body into those that the SDKs know and the others. */
function members(body: SampleBody): [Members, Members] {
  const all = body.kind === 'json' ? Object.entries(body.value as object) : []; // the SDKs send objects
  const unknown = [`${SERVICE}_parameters`, 'top_k', 'min_p'];
  return [
    all.filter(([name]) => !unknown.includes(name)),
    all.filter(([name]) => unknown.includes(name)),
  ];
}

/** The syntax of JSON values in a language. */
interface Language {
  readonly indent: string;
  readonly words: Readonly<Record<'true' | 'false' | 'null', string>>;
  readonly string: (text: string) => string;
  readonly key: (name: string) => string;
  /** Spaces inside the braces of an object on one line. */
  readonly space: string;
}

const PYTHON: Language = {
  indent: '    ',
  words: { true: 'True', false: 'False', null: 'None' },
  string: (text) => JSON.stringify(text),
  key: (name) => JSON.stringify(name),
  space: '',
};

const SCRIPT: Language = {
  indent: '  ',
  words: { true: 'true', false: 'false', null: 'null' },
  string: (text) => {
    const inner = JSON.stringify(text).slice(1, -1);
    return `'${inner.replaceAll(String.raw`\"`, '"').replaceAll("'", String.raw`\'`)}'`;
  },
  key: (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : SCRIPT.string(name)),
  space: ' ',
};

/** Longest list or object on one line, in characters. */
const LINE_CHARS = 64;

function literal(value: unknown, language: Language, level: number): string {
  const { words, indent, space } = language;
  if (typeof value === 'string') return language.string(value);
  if (typeof value === 'number') return String(value);
  if (typeof value !== 'object' || value === null) {
    return words[value === true ? 'true' : value === false ? 'false' : 'null'];
  }
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((one) => literal(one, language, level + 1))
    : Object.entries(value).map(
        ([name, one]) => `${language.key(name)}: ${literal(one, language, level + 1)}`,
      );
  const [open, close] = isList ? ['[', ']'] : [`{${space}`, `${space}}`];
  if (parts.length === 0) return isList ? '[]' : '{}';
  const short = open + parts.join(', ') + close;
  if (short.length <= LINE_CHARS && !short.includes('\n')) return short;
  const inner = `\n${indent.repeat(level + 1)}`;
  return `${open.trim()}${inner}${parts.join(`,${inner}`)},\n${indent.repeat(level)}${close.trim()}`;
}

/** Writes each argument or member on its own line. */
function spread(parts: readonly string[], indent: string, outer = ''): string {
  if (parts.length === 0) return '';
  return `\n${indent}${parts.join(`,\n${indent}`)},\n${outer}`;
}
