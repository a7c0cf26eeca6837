/** A dialog with a secret that is shown once. */
import type { ComponentChildren } from 'preact';
import { Overlay } from './overlay.tsx';
import { Copy } from './values.tsx';

interface ShownOnceProps {
  readonly title: string;
  readonly secret: string;
  readonly close: () => void;
  readonly about: ComponentChildren;
  readonly children?: ComponentChildren;
}

export function ShownOnce({ title, secret, close, about, children }: ShownOnceProps) {
  return (
    <Overlay title={title} staysOpen close={close}>
      <p>{about}</p>
      <p class="secret">
        <code>{secret}</code>
        <Copy text={secret} />
      </p>
      {children}
      <p class="row end">
        <button type="button" class="primary" onClick={close}>
          I have copied it
        </button>
      </p>
    </Overlay>
  );
}
