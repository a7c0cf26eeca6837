/**
 * One request as code that works once a key stands in the environment: for the command line, for
 * Python and for TypeScript; by the OpenAI SDK where the route is OpenAI's, else by plain HTTP. Pure
 * texts, so that it runs in the browser too.
 */

export interface Sample {
  readonly name: 'curl' | 'Python' | 'TypeScript';
  readonly text: string;
}

/** Environment variables that samples read. */
export type Credential = 'API_KEY' | 'ADMIN_KEY' | 'SIGN_IN';

export interface FormField {
  readonly name: string;
  readonly value: string;
  /** The value names a file. */
  readonly isFile: boolean;
}

export type SampleBody =
  | { readonly kind: 'json'; readonly value: unknown }
  | { readonly kind: 'form'; readonly fields: readonly FormField[] };

export interface SampleRequest {
  readonly method: string;
  /** Whole, with its query. */
  readonly url: string;
  readonly credential?: Credential | undefined;
  readonly body?: SampleBody | undefined;
  /** What comes back: one JSON value unless said. `file` is its name on the disk. */
  readonly answer?: 'text' | 'events' | 'nothing' | { readonly file: string } | undefined;
  /** The first answer is a refusal that says how to go on, and worth reading. */
  readonly isRefusedFirst?: boolean;
  readonly sdk?: SdkUse | undefined;
}

/** A request that a method of the OpenAI SDKs makes. */
export interface SdkUse {
  readonly baseUrl: string;
  readonly method: SdkMethod;
  /** Arguments before the named ones: ids of the path. */
  readonly ids: readonly string[];
  /** Members of the body that the SDKs do not know. */
  readonly isBeyond?: (member: string) => boolean;
}

interface SdkMethod {
  /** Below the client, in Python's spelling. */
  readonly call: string;
  /** What is worth printing of the `answer`, in Python and in TypeScript. */
  readonly shows?: string | readonly [python: string, typescript: string];
  /** What is worth printing of each `one` of a list. */
  readonly lists?: string;
}

const OPENAI: Readonly<Record<string, SdkMethod>> = {
  'POST /chat/completions': {
    call: 'chat.completions.create',
    shows: ['answer.choices[0].message.content', 'answer.choices[0]?.message.content'],
  },
  'POST /completions': {
    call: 'completions.create',
    shows: ['answer.choices[0].text', 'answer.choices[0]?.text'],
  },
  'POST /responses': { call: 'responses.create', shows: 'answer.output_text' },
  'POST /responses/input_tokens': {
    call: 'responses.input_tokens.count',
    shows: 'answer.input_tokens',
  },
  'GET /responses/{id}': { call: 'responses.retrieve', shows: 'answer.output_text' },
  'DELETE /responses/{id}': { call: 'responses.delete' },
  'GET /responses/{id}/input_items': { call: 'responses.input_items.list', lists: 'one' },
  'GET /models': { call: 'models.list', lists: 'one.id' },
  'GET /models/{id}': { call: 'models.retrieve', shows: 'answer.id' },
  'POST /embeddings': {
    call: 'embeddings.create',
    shows: ['answer.data[0].embedding', 'answer.data[0]?.embedding'],
  },
  'POST /moderations': { call: 'moderations.create', shows: 'answer.results' },
  'POST /images/generations': { call: 'images.generate', shows: 'answer.data' },
  'POST /images/edits': { call: 'images.edit', shows: 'answer.data' },
  'POST /audio/transcriptions': { call: 'audio.transcriptions.create', shows: 'answer.text' },
  'POST /audio/translations': { call: 'audio.translations.create', shows: 'answer.text' },
  'POST /audio/speech': { call: 'audio.speech.create' },
  'POST /files': { call: 'files.create', shows: 'answer.id' },
  'GET /files': { call: 'files.list', lists: 'one.id' },
  'GET /files/{id}': { call: 'files.retrieve', shows: 'answer' },
  'DELETE /files/{id}': { call: 'files.delete' },
  'GET /files/{id}/content': { call: 'files.content' },
  'POST /batches': { call: 'batches.create', shows: 'answer.id' },
  'GET /batches': { call: 'batches.list', lists: 'one.id' },
  'GET /batches/{id}': { call: 'batches.retrieve', shows: 'answer.status' },
  'POST /batches/{id}/cancel': { call: 'batches.cancel', shows: 'answer.status' },
};

/** The method of the OpenAI SDKs that asks this route; `path` is below the base path. */
export function sdkMethod(method: string, path: string): SdkMethod | undefined {
  return OPENAI[`${method} ${path.replaceAll(/\{\w+\}/g, '{id}')}`];
}

export function samplesOf(request: SampleRequest): readonly Sample[] {
  const { sdk } = request;
  return [
    { name: 'curl', text: curlOf(request) },
    {
      name: 'Python',
      text: sdk === undefined ? pythonRequest(request) : pythonSdk(request, sdk),
    },
    {
      name: 'TypeScript',
      text: sdk === undefined ? scriptRequest(request) : scriptSdk(request, sdk),
    },
  ];
}

/** Characters of a body that fit beside `-d`. */
const SHORT_BODY = 44;

function curlOf({ method, url, credential, body, answer }: SampleRequest): string {
  const streams = answer === 'events' || isStream(body);
  const lines = [`curl ${streams ? '-N ' : ''}${shellQuote(url)}`];
  if (method === 'HEAD') lines.push('-I');
  else if (method !== 'GET' && (method !== 'POST' || body === undefined))
    lines.push(`-X ${method}`);
  if (credential === 'SIGN_IN') lines.push('-H "SIGN-IN-WITH-X: $SIGN_IN"');
  else if (credential !== undefined) lines.push(`-H "Authorization: Bearer $${credential}"`);
  if (body?.kind === 'json') {
    lines.push("-H 'Content-Type: application/json'", `-d ${shellQuote(curlJson(body.value))}`);
  }
  for (const { name, value, isFile } of body?.kind === 'form' ? body.fields : []) {
    lines.push(`-F ${shellQuote(`${name}=${isFile ? '@' : ''}${value}`)}`);
  }
  if (typeof answer === 'object') lines.push(`-o ${answer.file}`);
  return lines.join(' \\\n  ');
}

/** On one line when it fits, else indented under the command. */
function curlJson(value: unknown): string {
  const short = JSON.stringify(value) ?? '';
  if (short.length <= SHORT_BODY) return short;
  return JSON.stringify(value, null, 2).replaceAll('\n', '\n  ');
}

function shellQuote(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function isStream(body: SampleBody | undefined): boolean {
  return body?.kind === 'json' && (body.value as { stream?: unknown } | null)?.stream === true; // any JSON
}

function pythonRequest(request: SampleRequest): string {
  const { method, url, credential, body, answer } = request;
  const isRead = answer === 'events' || isStream(body);
  const args = [PYTHON.string(url)];
  if (credential === 'SIGN_IN') args.push('headers={"SIGN-IN-WITH-X": os.environ["SIGN_IN"]}');
  else if (credential !== undefined) {
    args.push(`headers={"Authorization": f"Bearer {os.environ['${credential}']}"}`);
  }
  if (body?.kind === 'json') args.push(`json=${literal(body.value, PYTHON, 1)}`);
  if (body?.kind === 'form') args.push(...pythonForm(body.fields));
  if (isRead) args.push('stream=True');
  const check = request.isRefusedFirst === true ? '' : 'answer.raise_for_status()\n';
  const imports = credential === undefined ? 'import requests' : 'import os\nimport requests';
  const shown = {
    nothing: 'print(answer.status_code)',
    text: 'print(answer.text)',
    json: 'print(answer.json())',
    events: 'for line in answer.iter_lines(decode_unicode=True):\n    print(line)',
  };
  const tail =
    typeof answer === 'object'
      ? `with open(${PYTHON.string(answer.file)}, "wb") as file:\n    file.write(answer.content)`
      : shown[isRead ? 'events' : (answer ?? 'json')];
  return `${imports}\n\nanswer = requests.${method.toLowerCase()}(${args.length === 1 ? args[0] : spread(args, '    ')})\n${check}${tail}`;
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

function pythonSdk({ body, answer }: SampleRequest, sdk: SdkUse): string {
  const args = [...sdk.ids.map(PYTHON.string), ...pythonArguments(body, sdk)];
  const call = `client.${sdk.method.call}(${spread(args, '    ')})`;
  const key = 'api_key=os.environ["API_KEY"]';
  const head = `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${PYTHON.string(sdk.baseUrl)}, ${key})\n`;
  const { lists } = sdk.method;
  if (lists !== undefined) return `${head}for one in ${call}:\n    print(${lists})`;
  const shows = shownOf(sdk.method, 0);
  const tail = isStream(body)
    ? 'for chunk in answer:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)'
    : typeof answer === 'object'
      ? `answer.write_to_file(${PYTHON.string(answer.file)})`
      : `print(${shows})`;
  return `${head}answer = ${call}\n${tail}`;
}

function pythonArguments(body: SampleBody | undefined, sdk: SdkUse): string[] {
  if (body?.kind === 'form') {
    return body.fields.map(({ name, value, isFile }) => {
      const text = PYTHON.string(value);
      return `${name}=${isFile ? `open(${text}, "rb")` : text}`;
    });
  }
  const [known, beyond] = members(body, sdk);
  const args = known.map(([name, value]) => `${name}=${literal(value, PYTHON, 1)}`);
  if (beyond.length === 0) return args;
  return [...args, `extra_body=${literal(Object.fromEntries(beyond), PYTHON, 1)}`];
}

function scriptRequest(request: SampleRequest): string {
  const { method, url, credential, body, answer } = request;
  const headers: string[] = [];
  if (credential === 'SIGN_IN') headers.push("'sign-in-with-x': process.env.SIGN_IN ?? ''");
  else if (credential !== undefined) {
    headers.push(`authorization: \`Bearer \${process.env.${credential}}\``);
  }
  if (body?.kind === 'json') headers.push("'content-type': 'application/json'");
  const options: string[] = [];
  if (method !== 'GET') options.push(`method: '${method}'`);
  if (headers.length > 0) options.push(`headers: {${spread(headers, '    ', '  ')}}`);
  if (body?.kind === 'json') {
    options.push(`body: JSON.stringify(${literal(body.value, SCRIPT, 1)})`);
  }
  if (body?.kind === 'form') options.push('body: form');
  const shown = {
    nothing: 'console.log(answer.status);',
    text: 'console.log(await answer.text());',
    json: 'console.log(await answer.json());',
    events:
      'for await (const text of answer.body!.pipeThrough(new TextDecoderStream())) {\n  process.stdout.write(text);\n}',
  };
  const tail =
    typeof answer === 'object'
      ? `await writeFile('${answer.file}', Buffer.from(await answer.arrayBuffer()));`
      : shown[answer === 'events' || isStream(body) ? 'events' : (answer ?? 'json')];
  const check =
    request.isRefusedFirst === true
      ? ''
      : 'if (!answer.ok) throw new Error(await answer.text());\n';
  const imports = scriptImports(body, answer);
  const form = body?.kind === 'form' ? `${scriptForm(body.fields)}\n` : '';
  const second = options.length === 0 ? '' : `, {${spread(options, '  ')}}`;
  return `${imports}${form}const answer = await fetch(${SCRIPT.string(url)}${second});\n${check}${tail}`;
}

function scriptImports(body: SampleBody | undefined, answer: SampleRequest['answer']): string {
  const lines: string[] = [];
  const hasFile = body?.kind === 'form' && body.fields.some(({ isFile }) => isFile);
  if (hasFile) lines.push("import { openAsBlob } from 'node:fs';");
  if (typeof answer === 'object') lines.push("import { writeFile } from 'node:fs/promises';");
  return lines.length === 0 ? '' : `${lines.join('\n')}\n\n`;
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

function scriptSdk({ body, answer }: SampleRequest, sdk: SdkUse): string {
  const named = scriptArguments(body, sdk);
  const object = named.length === 0 ? [] : [`{${spread(named, '  ')}}`];
  const method = sdk.method.call.replaceAll(/_(\w)/g, (_all, letter: string) =>
    letter.toUpperCase(),
  );
  const call = `client.${method}(${[...sdk.ids.map(SCRIPT.string), ...object].join(', ')})`;
  const hasFile = body?.kind === 'form' && body.fields.some(({ isFile }) => isFile);
  const imports = [
    ...(hasFile ? ["import { createReadStream } from 'node:fs';"] : []),
    ...(typeof answer === 'object' ? ["import { writeFile } from 'node:fs/promises';"] : []),
    "import OpenAI from 'openai';",
  ].join('\n');
  const head = `${imports}\n\nconst client = new OpenAI({\n  baseURL: ${SCRIPT.string(sdk.baseUrl)},\n  apiKey: process.env.API_KEY,\n});\n`;
  const { lists } = sdk.method;
  if (lists !== undefined) {
    return `${head}for await (const one of ${call}) {\n  console.log(${lists});\n}`;
  }
  const shows = shownOf(sdk.method, 1);
  const tail = isStream(body)
    ? "for await (const chunk of answer) {\n  process.stdout.write(chunk.choices[0]?.delta.content ?? '');\n}"
    : typeof answer === 'object'
      ? `await writeFile('${answer.file}', Buffer.from(await answer.arrayBuffer()));`
      : `console.log(${shows});`;
  return `${head}const answer = await ${call};\n${tail}`;
}

function scriptArguments(body: SampleBody | undefined, sdk: SdkUse): string[] {
  if (body?.kind === 'form') {
    return body.fields.map(({ name, value, isFile }) => {
      const text = SCRIPT.string(value);
      return `${name}: ${isFile ? `createReadStream(${text})` : text}`;
    });
  }
  const [known, beyond] = members(body, sdk);
  const written = ([name, value]: [string, unknown]): string =>
    `${SCRIPT.key(name)}: ${literal(value, SCRIPT, 1)}`;
  if (beyond.length === 0) return known.map(written);
  const [first = '', ...rest] = beyond.map(written);
  const marked = `// @ts-expect-error beyond the types of the SDK\n  ${first}`;
  return [...known.map(written), marked, ...rest];
}

function shownOf({ shows = 'answer' }: SdkMethod, at: 0 | 1): string {
  return typeof shows === 'string' ? shows : shows[at];
}

type Members = [string, unknown][];

function members(body: SampleBody | undefined, { isBeyond }: SdkUse): [Members, Members] {
  const all = body?.kind === 'json' ? Object.entries(body.value as object) : []; // the SDKs send objects
  return [
    all.filter(([name]) => isBeyond?.(name) !== true),
    all.filter(([name]) => isBeyond?.(name) === true),
  ];
}

/** How a language writes what JSON can say. */
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

/** Characters of a list or an object that stay on one line. */
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

/** Arguments or members, each on a line of its own; nothing where there are none. */
function spread(parts: readonly string[], indent: string, outer = ''): string {
  if (parts.length === 0) return '';
  return `\n${indent}${parts.join(`,\n${indent}`)},\n${outer}`;
}
