/**
 * Removes the background of a photograph:
 *
 *   FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/media/cutout.ts me.jpg me.png
 */
import { readFile, writeFile } from 'node:fs/promises';
import { argv, env } from 'node:process';

const url = env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = env['FAREBOX_KEY'] ?? '';
const [, , photo = 'photo.jpg', result = 'cutout.png'] = argv;

const form = new FormData();
form.set('image', new Blob([await readFile(photo)]), photo);
const response = await fetch(`${url}/image/background-remove`, {
  method: 'POST',
  headers: { authorization: `Bearer ${key}` },
  body: form,
});
if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
await writeFile(result, Buffer.from(await response.arrayBuffer()));
console.log(`${result} was created by ${response.headers.get('x-svc-model-id')}`);
