/** The images tab: generates images from a description. */
import { useSignal } from '@preact/signals';
import { TextArea, TextField } from '../parts/form.tsx';
import { textIn } from '../request-history.ts';
import { useModelChoice } from './parts.tsx';
import { Trial } from './trial.tsx';

interface ImagesResponse {
  readonly data: readonly { readonly url?: string }[];
}

const MAX_IMAGES = 4;

export function Images() {
  const choice = useModelChoice('image');
  const prompt = useSignal('A lighthouse at dawn, watercolour');
  const size = useSignal('');
  const count = useSignal('1');
  const body = {
    prompt: prompt.value,
    n: Number(count.value),
    ...(size.value !== '' && { size: size.value }),
    response_format: 'url',
  };
  return (
    <Trial
      kind="images"
      path="/images/generations"
      choice={choice}
      body={body}
      summary={prompt.value}
      isReady={prompt.value.trim() !== ''}
      verb="Generate"
      isRunningText="Generating…"
      emptyTitle="Your images appear here"
      emptyText="Each image is charged."
      read={async (response) => (await response.json()) as ImagesResponse} // documented
      restore={(earlier) => {
        prompt.value = textIn(earlier, 'prompt');
        size.value = textIn(earlier, 'size');
        count.value = textIn(earlier, 'n');
      }}
      show={({ data }) => (
        <div class="made-images">
          {data.map(({ url = '' }, at) => (
            <figure key={at}>
              <img src={url} alt={`Image ${at + 1}: ${prompt.value}`} />
              <figcaption>
                <a href={url} download={`image-${at + 1}.${formatOf(url)}`}>
                  Download image {at + 1}
                </a>
              </figcaption>
            </figure>
          ))}
        </div>
      )}
      fields={
        <>
          <TextArea
            label="Prompt"
            hint="Description of the image."
            rows={4}
            value={prompt.value}
            onInput={(value) => (prompt.value = value)}
          />
          <TextField
            label="Size"
            hint="Such as 1024x1024. Empty: the model chooses."
            value={size.value}
            onInput={(value) => (size.value = value)}
          />
          <TextField
            label="Number of images"
            type="number"
            min="1"
            max={String(MAX_IMAGES)}
            required
            value={count.value}
            onInput={(value) => (count.value = value)}
          />
        </>
      }
    />
  );
}

/** `data:image/png;base64,…` -> `png` */
function formatOf(url: string): string {
  return /^data:image\/(\w+)/.exec(url)?.[1] ?? 'png';
}
