/** Windows over the page: a drawer at its side, a dialog in its middle. The browser keeps the focus. */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';

interface OverlayProps {
  readonly title: string;
  readonly kind?: 'drawer' | 'dialog';
  readonly close: () => void;
  readonly children: ComponentChildren;
}

export function Overlay({ title, kind = 'dialog', close, children }: OverlayProps) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = box.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={box}
      class={kind}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onMouseDown={(event) => {
        if (event.target === box.current) close();
      }}
    >
      <div class="inside">
        <header>
          <h2 id={heading}>{title}</h2>
          <button type="button" class="quiet" aria-label="Close" onClick={close}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
